//! What a fleet's policy answers over HTTP, asked without a socket.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use tollgate::coordinator::Refused;

use super::*;
use crate::agreement::{Alone, ProposeError, StoreError};

/// A member of a fleet that is no other's, and its agreement.
fn member() -> (App, Arc<Alone>) {
    let (mut app, _) = App::for_tests(Vec::new());
    let agreement = Arc::new(Alone::new());
    app.agreement = Some(agreement.clone());
    (app, agreement)
}

struct Said {
    status: u16,
    etag: Option<String>,
    kind: String,
    body: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    fn problem(&self) -> (u16, String) {
        assert_eq!(self.kind, "application/problem+json");
        let body = self.json();
        assert_eq!(body["status"], self.status);
        (self.status, body["detail"].as_str().expect("a detail").to_owned())
    }
}

fn ask(app: &App, method: &str, path: &str, field: (&str, &str), body: &str) -> Said {
    let request = Request::builder().method(method).uri(path).header(field.0, field.1);
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    let asked = Asked::of(request.uri().path()).expect("a path of a policy");
    let guard = Guard::new(1, Arc::default(), Arc::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let answered = answer(asked, request, app, &guard).await;
        let response = answered.unwrap_or_else(Problem::into_response);
        let text = |name| {
            let value = response.headers().get(name).map(|value| value.to_str());
            value.map(|value| value.expect("text").to_owned())
        };
        let (etag, kind) = (text(ETAG), text(hyper::header::CONTENT_TYPE));
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body = String::from_utf8(body.to_vec()).expect("text");
        Said { status, etag, kind: kind.expect("a type"), body }
    })
}

fn get(app: &App, path: &str) -> Said {
    ask(app, "GET", path, ("accept", "*/*"), "")
}

fn put_from(app: &App, seen: &str, body: &str) -> Said {
    ask(app, "PUT", "/v1/policy", ("if-match", seen), body)
}

fn put(app: &App, body: &str) -> Said {
    ask(app, "PUT", "/v1/policy", ("accept", "*/*"), body)
}

const API: &str = r#"{"limits": [{"name": "api", "key": ["tenant"], "rate": "10/s"}],
    "author": "ada", "comment": "first\nof all"}"#;
const PATH: &str = r#"{"limits": [{"name": "p", "path": [{"name": "t"}], "rate": "1/d"}]}"#;

#[test]
fn a_daemon_that_is_alone_has_no_policy_of_a_fleet() {
    let (app, _) = App::for_tests(Vec::new());
    for (path, method) in [
        ("/v1/policy", "GET"),
        ("/v1/policy", "PUT"),
        ("/v1/policy/history", "GET"),
        ("/v1/policy/7", "GET"),
        ("/v1/policy/rollback", "POST"),
    ] {
        let (status, detail) = ask(&app, method, path, ("accept", "*/*"), API).problem();
        let expected = "it is no member of a fleet: its policy is what none.toml says";
        assert!(status == 409 && detail.starts_with(expected), "{path}: {status} {detail}");
    }
}

#[test]
fn a_policy_is_put_read_and_put_again() {
    let (app, _) = member();
    let nothing = get(&app, "/v1/policy");
    assert_eq!((nothing.status, nothing.etag.as_deref()), (200, Some("\"0\"")));
    assert_eq!((&nothing.json()["limits"], &nothing.json()["revision"]), (&json!([]), &json!(0)));
    let said = put_from(&app, "\"0\"", API);
    assert_eq!((said.status, said.etag.as_deref()), (200, Some("\"1\"")), "{}", said.body);
    assert_eq!(said.json(), json!({ "revision": 1, "warnings": [] }));
    let said = get(&app, "/v1/policy");
    assert_eq!((said.etag.as_deref(), said.kind.as_str()), (Some("\"1\""), JSON_TYPE));
    let mut body = said.json();
    assert!(body["unix_seconds"].take().as_u64().is_some_and(|seconds| seconds > 1_700_000_000));
    let limits = json!([{ "name": "api", "key": ["tenant"], "rate": "10/s" }]);
    let expected = json!({
        "revision": 1, "author": "ada", "comment": "first\nof all", "unix_seconds": null,
        "limits": limits,
    });
    assert_eq!(body, expected);
    let again = json!({ "limits": body["limits"] }).to_string();
    assert_eq!(put(&app, &again).json()["revision"], 2);
    assert_eq!(get(&app, "/v1/policy").json()["limits"], limits);
    assert_eq!(get(&app, "/v1/policy/history").json()["history"][0]["changed"], 0);
}

#[test]
fn a_policy_is_shown_in_toml_unless_a_limit_has_a_path() {
    let (app, _) = member();
    put(&app, API);
    let accepting = ask(&app, "GET", "/v1/policy", ("accept", "application/toml, */*"), "");
    for said in [get(&app, "/v1/policy?format=toml"), accepting] {
        assert_eq!((said.status, said.kind.as_str()), (200, "application/toml"));
        let (head, rest) = said.body.split_once("\n\n").expect("a head");
        assert!(head.starts_with("# Revision 1, ") && head.ends_with(" by \"ada\": first of all"));
        assert_eq!(rest, "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"10/s\"\n");
    }
    put(&app, PATH);
    let (status, detail) = get(&app, "/v1/policy?format=toml").problem();
    assert!(status == 406 && detail.ends_with("ask for JSON"), "{detail}");
    assert_eq!(get(&app, "/v1/policy?format=json").json()["limits"][0]["name"], "p");
    assert_eq!(get(&app, "/v1/policy/1?format=toml").status, 200);
    for wrong in ["/v1/policy?format=yaml", "/v1/policy/history?x", "/v1/policy?"] {
        assert_eq!(get(&app, wrong).problem().0, 400, "{wrong}");
    }
}

#[test]
fn whoever_saw_another_policy_is_refused_with_both_revisions() {
    let (app, _) = member();
    put(&app, API);
    let said = put_from(&app, "\"0\"", PATH);
    let (status, detail) = said.problem();
    assert_eq!((status, detail.as_str()), (412, "revision 1 is in force, not 0"));
    assert_eq!((&said.json()["expected"], &said.json()["current"]), (&json!(0), &json!(1)));
    assert_eq!(get(&app, "/v1/policy").json()["limits"][0]["name"], "api");
    for wrong in ["1", "*", "W/\"1\"", "\"1\", \"2\"", "\"01\"", "\"\""] {
        let (status, detail) = put_from(&app, wrong, PATH).problem();
        assert!(status == 400 && detail.starts_with("If-Match must be one"), "{wrong}: {detail}");
    }
}

#[test]
fn a_policy_that_is_not_sound_is_refused_with_all_its_mistakes_and_never_proposed() {
    let (app, agreement) = member();
    // Would be the answer to any proposal.
    *agreement.failing.lock().expect("nobody panicked") =
        Some(ProposeError::Store(StoreError("proposed".into())));
    let wrong = "{\"limits\": [\n {\"name\": \"A\", \"rate\": \"1/s\"},\n {\"name\": \"b\", \
                 \"rate\": \"1\"},\n {\"name\": \"c\", \"windows\": 1}]}";
    let said = put(&app, wrong);
    assert_eq!(said.problem().0, 400);
    let findings = said.json()["findings"].as_array().expect("a list").clone();
    let places: Vec<_> = findings.iter().map(|finding| finding["line"].as_u64()).collect();
    assert_eq!(places, [Some(2), Some(3), Some(4)]);
    assert_eq!((&findings[0]["severity"], &findings[0]["file"]), (&json!("error"), &json!("body")));
    // Sound by themselves, and not together.
    let twins = r#"{"limits": [{"name": "a", "rate": "1/s"}, {"name": "a", "rate": "2/s"}]}"#;
    let mixed = format!("{{\"limits\": [{}, {}]}}", r#"{"name": "a", "rate": "1/s"}"#, {
        r#"{"name": "p", "path": [{"name": "t"}], "rate": "1/d"}"#
    });
    for wrong in [twins, &mixed, "{}", "[]", "{\"limits\": 3}", "{\"limits\": [], \"x\": 1}", ""] {
        assert_eq!(put(&app, wrong).problem().0, 400, "{wrong}");
    }
    assert_eq!(put(&app, API).problem().0, 500, "a sound one is proposed");
}

#[test]
fn what_is_doubtful_is_told_and_put() {
    let (app, _) = member();
    let said = put(&app, r#"{"limits": [{"name": "a", "rate": "1/s", "shadow": true}]}"#);
    let warning = said.json()["warnings"][0]["message"].as_str().expect("one").to_owned();
    assert_eq!((said.status, &said.json()["revision"]), (200, &json!(1)));
    assert_eq!(warning, "limit \"a\" is a shadow: it counts and never denies");
}

#[test]
fn more_than_a_fleet_keeps_is_refused() {
    let (app, _) = member();
    let long = format!("{{\"limits\": [], \"comment\": \"{}\"}}", "x".repeat(4_097));
    let (status, detail) = put(&app, &long).problem();
    assert_eq!((status, &*detail), (400, "a comment has at most 4096 bytes, not 4097"));
    let (status, detail) = put(&app, &" ".repeat((16 << 20) + 1)).problem();
    assert_eq!((status, &*detail), (413, "at most 16777216 bytes are read"));
}

#[test]
fn an_older_policy_takes_force_again_as_a_new_revision() {
    let (app, _) = member();
    put(&app, API);
    put(&app, PATH);
    let back = |field, body| ask(&app, "POST", "/v1/policy/rollback", field, body);
    let said = back(("if-match", "\"1\""), r#"{"to": 1}"#);
    assert_eq!(said.problem().0, 412);
    let said = back(("if-match", "\"2\""), r#"{"to": 1, "comment": "too few", "author": "bea"}"#);
    assert_eq!(said.json(), json!({ "revision": 3, "warnings": [] }));
    assert_eq!(get(&app, "/v1/policy").json()["limits"][0]["name"], "api");
    assert_eq!(get(&app, "/v1/policy/2").json()["limits"][0]["name"], "p");
    let history = get(&app, "/v1/policy/history").json();
    let list = history["history"].as_array().expect("a list");
    let revisions: Vec<_> = list.iter().map(|change| change["revision"].as_u64()).collect();
    assert_eq!(revisions, [Some(3), Some(2), Some(1)]);
    assert_eq!((&list[0]["comment"], &list[0]["author"]), (&json!("too few"), &json!("bea")));
    assert_eq!((&list[0]["limits"], &list[0]["changed"]), (&json!(1), &json!(1)));
    let (status, detail) = back(("accept", "*/*"), r#"{"to": 9}"#).problem();
    assert!(status == 404 && detail.contains("/v1/policy/history"), "{detail}");
    assert_eq!(get(&app, "/v1/policy/0").problem().0, 404);
    for wrong in ["", "{}", r#"{"to": -1}"#, r#"{"to": 1, "of": 2}"#] {
        assert_eq!(back(("accept", "*/*"), wrong).problem().0, 400, "{wrong}");
    }
}

#[test]
fn a_limit_that_a_newer_version_wrote_is_named_and_not_put_again() {
    let (app, agreement) = member();
    let text = r#"{"name":"api","rate":"10/s","windows":3}"#.into();
    let limits = vec![LimitText { name: "default/api".into(), text }];
    let newer = Command::PutPolicy { edit: Edit::default(), limits };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(agreement.propose(newer)).expect("put");
    put(&app, API);
    for said in [
        get(&app, "/v1/policy/1"),
        ask(&app, "POST", "/v1/policy/rollback", ("accept", "*/*"), r#"{"to": 1}"#),
    ] {
        let (status, detail) = said.problem();
        let expected = "revision 1: limit \"default/api\" can't be read: unknown field `windows`";
        assert!(status == 409 && detail.starts_with(expected), "{status} {detail}");
    }
}

#[test]
fn each_failure_of_the_agreement_says_what_became_of_the_proposal() {
    let (app, agreement) = member();
    let waited = Duration::from_secs(5);
    for (error, status, expected) in [
        (ProposeError::NoLeader { waited }, 503, "nothing was changed"),
        (ProposeError::TimedOut { waited }, 504, "look at the policy in force before trying again"),
        (ProposeError::Refused(Refused::NotFounded), 503, "has not been founded"),
        (ProposeError::Store(StoreError("disk full".into())), 500, "disk full"),
    ] {
        *agreement.failing.lock().expect("nobody panicked") = Some(error);
        let (found, detail) = put(&app, API).problem();
        assert_eq!(found, status);
        assert!(detail.ends_with(expected), "{detail}");
    }
}

#[test]
fn a_path_has_its_methods_and_a_revision_its_spelling() {
    let (app, _) = member();
    for (method, path) in [
        ("POST", "/v1/policy"),
        ("DELETE", "/v1/policy"),
        ("PUT", "/v1/policy/history"),
        ("PUT", "/v1/policy/1"),
        ("GET", "/v1/policy/rollback"),
    ] {
        assert_eq!(ask(&app, method, path, ("accept", "*/*"), "").problem().0, 405, "{path}");
    }
    assert_eq!(ask(&app, "HEAD", "/v1/policy", ("accept", "*/*"), "").status, 200);
    for path in ["/v1/policyx", "/v1/policy/", "/v1/policy/01", "/v1/policy/+1", "/v1/policy/1/"] {
        assert_eq!(Asked::of(path), None, "{path}");
    }
    assert_eq!(Asked::of("/v1/policy/12"), Some(Asked::Revision(Revision::new(12))));
}
