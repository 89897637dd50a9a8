//! TLS: the server's certificate is checked, and no provider of the process is needed.

use std::path::Path;
use std::process::Command;

use tollgate_redis::{FailureKind, Outcome, Store, StoreError, StoreOptions, Tls};

use crate::server::{Server, free_port, read, write};

/// Makes an authority and a certificate of 127.0.0.1 that it signs.
fn certificates(folder: &Path) {
    let openssl = |words: &str| {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(folder).output();
        let output = output.expect("these tests need openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"));
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        .expect("a file");
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem \
         -days 2 -extfile names"
            .replace("  ", " ")
            .as_str(),
    );
}

#[tokio::test]
async fn a_server_is_used_by_tls_if_somebody_vouches_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().expect("letters").to_owned();
    let (port, plain) = (free_port(), free_port().to_string());
    let (certificate, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let port_text = port.to_string();
    let server = Server::at(
        port,
        &[
            "--port",
            &plain,
            "--tls-port",
            &port_text,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &ca,
            "--tls-auth-clients",
            "no",
        ],
    );
    let urls = [format!("rediss://127.0.0.1:{}", server.port)];
    let with_ca = |ca_file: Option<&str>| {
        let tls = Some(Tls { ca_file: ca_file.map(Into::into) });
        let timeout = std::time::Duration::from_secs(2);
        let connect_timeout = timeout;
        let options = StoreOptions::from_urls(&urls).expect("options");
        StoreOptions {
            tls,
            connect_timeout,
            read_timeout: timeout,
            write_timeout: timeout,
            ..options
        }
    };
    let store = Store::new(with_ca(Some(&ca))).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::Done);
    assert_eq!(read(&store, "a").await, Some(1));
    // A reply of many records.
    let additions: Vec<_> =
        (0..5_000).map(|number| crate::server::addition(&format!("{number}"), 1)).collect();
    assert_eq!(store.write(&additions).await, vec![Outcome::Done; 5_000]);
    let names: Vec<_> = (0..5_000).map(|number| [number.to_string(), "a".to_owned()]).collect();
    assert_eq!(store.read(&names).await, vec![Some((1, 1)); 5_000]);
    assert_eq!(store.health().counts.connects, 1, "an idle connection of TLS is kept");

    let stranger = tempfile::tempdir().expect("a folder");
    certificates(stranger.path());
    let other = stranger.path().join("ca.pem");
    let store = Store::new(with_ca(other.to_str())).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    let failure = store.health().last_failure.expect("a failure");
    assert_eq!(failure.kind, FailureKind::Connect);
    assert!(failure.text.contains("certificate"), "{failure:?}");
}

#[test]
fn certificates_that_can_not_be_read_make_no_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    let error = || {
        let options = StoreOptions::from_urls(&["rediss://a"]).expect("options");
        let tls = Some(Tls { ca_file: Some(file.clone()) });
        match Store::new(StoreOptions { tls, ..options }) {
            Err(StoreError::CaFile { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(!error().is_empty());
    std::fs::write(&file, "nothing of the kind").expect("a file");
    assert_eq!(error(), "it has no certificate");
}
