//! What is wrong with a command or with the bytes of one is told in redis' words; bytes that are
//! no command end their connection, and no other.

use crate::resp::command;
use crate::support::{Daemon, Reply, TEN};

/// What is said to bytes that end their connection.
fn last_words(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut resp = daemon.resp();
    resp.send_some(bytes);
    String::from_utf8(resp.rest()).expect("text")
}

#[test]
fn bytes_that_are_no_command_are_told_why_and_end_their_connection_alone() {
    let daemon = Daemon::new(TEN);
    let mut bystander = daemon.resp();
    let long = "a".repeat(60 << 10);
    let three = format!("*3\r\n${0}\r\n{long}\r\n${0}\r\n{long}\r\n${0}\r\n{long}\r\n", 60 << 10);
    let cases: [(&[u8], &str); 17] = [
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*2\r\n$4\r\nPING\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\r\n", "expected '$', got '\\r'"),
        (b"*65\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*99999999999999999999999999999999", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$65537\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
        (three.as_bytes(), "too big mbulk request"),
        (&long.as_bytes()[..16 << 10], "too big inline request"),
        (b"ECHO \"a\r\n", "unbalanced quotes in request"),
        (b"ECHO 'a'b\r\n", "unbalanced quotes in request"),
    ];
    for (bytes, why) in cases {
        let shown = bytes[..bytes.len().min(40)].escape_ascii();
        let expected = format!("-ERR Protocol error: {why}\r\n");
        assert_eq!(last_words(&daemon, bytes), expected, "{shown}");
        assert_eq!(bystander.ask("PING"), "+PONG", "{shown}");
    }
    let words = format!("{}\r\n", "a ".repeat(65));
    let text = last_words(&daemon, words.as_bytes());
    assert_eq!(text, "-ERR Protocol error: invalid multibulk length\r\n");
    let malformed = "tollgate_request_errors_total{face=\"resp\",kind=\"malformed\"}";
    assert_eq!(daemon.metric(malformed), cases.len() as u64 + 1);
    // What came before is answered, what comes behind is not.
    let text = last_words(&daemon, b"PING\r\n*1\r\n+PING\r\nPING\r\n");
    assert_eq!(text, "+PONG\r\n-ERR Protocol error: expected '$', got '+'\r\n");
}

/// A page can have a browser post what it likes to any port of its machine.
#[test]
fn a_browser_that_is_led_here_is_turned_away_before_its_body_is_read() {
    let daemon = Daemon::new("limit = []\n");
    let line = "CL.THROTTLE k 9 10 86400\r\n";
    for head in ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"] {
        let text =
            last_words(&daemon, format!("{head}content-length: 26\r\n\r\n{line}").as_bytes());
        assert!(!text.contains('*'), "{text}");
    }
    assert_eq!(daemon.keys(), 0);
}

#[test]
fn the_largest_commands_are_taken() {
    let daemon = Daemon::new(TEN);
    let mut resp = daemon.resp();
    let word = vec![b'a'; 64 << 10];
    assert_eq!(resp.ask_words(&[b"ECHO", &word]), Reply::Bulk(word.clone()));
    let line = format!("ECHO {}\r\n", "b".repeat((16 << 10) - 7));
    resp.send(line.as_bytes());
    assert_eq!(resp.reply(), Reply::Bulk(vec![b'b'; (16 << 10) - 7]));
    let words = vec![&b"x"[..]; 64];
    assert!(resp.ask_words(&words).to_string().starts_with("-ERR unknown command 'x'"));
    let almost = vec![b'c'; (63 << 10) + 900];
    let text = resp.ask_words(&[b"ECHO", &almost, &almost]).to_string();
    assert_eq!(text, "-ERR wrong number of arguments for 'echo' command");
    // Byte by byte, as a hostile client may send it.
    for byte in command(&[b"ECHO", b"a\r\n$b"]) {
        resp.send(&[byte]);
    }
    assert_eq!(resp.reply(), Reply::Bulk(b"a\r\n$b".to_vec()));
}

#[test]
fn empty_commands_and_lines_ask_for_nothing() {
    let daemon = Daemon::new(TEN);
    let mut resp = daemon.resp();
    resp.send(b"\r\n\n   \r\n*0\r\n*-1\r\nPING\r\n");
    assert_eq!(resp.reply().to_string(), "+PONG");
    resp.send(b"  ping  \"a\\x00\\n\"\nECHO 'it\\'s'\r\n");
    assert_eq!(resp.reply(), Reply::Bulk(b"a\0\n".to_vec()));
    assert_eq!(resp.reply(), Reply::Bulk(b"it's".to_vec()));
}

#[test]
fn a_command_that_is_wrong_is_told_in_redis_words_and_the_connection_goes_on() {
    let daemon = Daemon::new(TEN);
    let mut resp = daemon.resp();
    for (line, error) in [
        ("FOO u 15", "ERR unknown command 'FOO', with args beginning with: 'u' '15' "),
        ("FOO", "ERR unknown command 'FOO', with args beginning with: "),
        ("a b c d e f", "ERR unknown command 'a', with args beginning with: 'b' 'c' 'd' 'e' "),
        ("PING a b", "ERR wrong number of arguments for 'ping' command"),
        ("ECHO", "ERR wrong number of arguments for 'echo' command"),
        ("SELECT", "ERR wrong number of arguments for 'select' command"),
        ("AUTH", "ERR wrong number of arguments for 'auth' command"),
        ("CLIENT", "ERR wrong number of arguments for 'client' command"),
        ("DBSIZE x", "ERR wrong number of arguments for 'dbsize' command"),
        ("SELECT 1", "ERR DB index is out of range"),
        ("SELECT x", "ERR value is not an integer or out of range"),
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO x", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 WHAT", "ERR Syntax error in HELLO option 'WHAT'"),
        ("HELLO 3 AUTH default", "ERR Syntax error in HELLO option 'AUTH'"),
        ("CLIENT NONE", "ERR unknown subcommand 'NONE'. Try CLIENT HELP."),
        (
            "CLIENT MAINT_NOTIFICATIONS ON",
            "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
        ),
        ("CONFIG SET save x", "ERR unknown subcommand 'SET'. Try CONFIG HELP."),
    ] {
        assert_eq!(resp.ask(line), format!("-{error}"), "{line}");
    }
    let hostile = resp.ask_words(&[b"FOO\r\n+OK", b"\xff"]).to_string();
    let expected = "-ERR unknown command 'FOO  +OK', with args beginning with: '\u{fffd}' ";
    assert_eq!(hostile, expected);
    let name = resp.ask_words(&[b"CLIENT", b"SETNAME", b"a b"]).to_string();
    assert!(name.starts_with("-ERR Client names cannot contain spaces"), "{name}");
    let long = resp.ask_words(&[&[b'x'; 60_000]]).to_string();
    assert!(long.len() < 300, "{long}");
    assert_eq!(resp.ask("PING"), "+PONG");
}

#[test]
fn a_throttle_that_is_wrong_is_told_in_redis_cell_s_words_and_spends_nothing() {
    let daemon = Daemon::new("limit = []\n");
    let mut resp = daemon.resp();
    let usage = "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    for (line, error) in [
        ("CL.THROTTLE", usage),
        ("CL.THROTTLE k", usage),
        ("cl.throttle k 1 2", usage),
        ("CL.THROTTLE k 1 2 3 4 5", usage),
        ("CL.THROTTLE k x 2 3", "Couldn't parse as integer: x"),
        ("CL.THROTTLE k 1 2.5 3", "Couldn't parse as integer: 2.5"),
        ("CL.THROTTLE k 1 2 ", "Couldn't parse as integer: "),
        (
            "CL.THROTTLE k 1 2 3 9223372036854775808",
            "Couldn't parse as integer: 9223372036854775808",
        ),
        ("CL.THROTTLE k 1 0 3", "Zero rates are not supported"),
        ("CL.THROTTLE k 1 2 0", "Zero rates are not supported"),
        ("CL.THROTTLE k -1 2 3", "max_burst must not be negative: -1"),
        ("CL.THROTTLE k 1 -2 3", "count must not be negative: -2"),
        ("CL.THROTTLE k 1 2 -3", "period must not be negative: -3"),
    ] {
        assert_eq!(resp.ask(line), format!("-Cell error: Store error: {error}"), "{line}");
    }
    for line in [
        "CL.THROTTLE k 1 1 9223372036854775807",
        "CL.THROTTLE k 9223372036854775807 1 60",
        "CL.THROTTLE k 1 9223372036854775807 1",
    ] {
        let text = resp.ask(line);
        assert!(text.starts_with("-Cell error: Store error: "), "{line}: {text}");
    }
    assert_eq!(daemon.keys(), 0);
    let bad = resp.ask_words(&[b"CL.THROTTLE", b"k", &[b'9'; 5_000], b"1", b"1"]).to_string();
    assert!(bad.len() < 200, "{bad}");
    assert_eq!(resp.ask("CL.THROTTLE k 15 1 60 16"), "[0 16 0 -1 960]");
    let limited = resp.ask_reply("CL.THROTTLE k 15 1 60").numbers();
    assert_eq!(limited[..3], [1, 16, 0]);
    assert!((1..=60).contains(&limited[3]) && (901..=960).contains(&limited[4]), "{limited:?}");
    assert_eq!(resp.ask("CL.THROTTLE k2 15 1 60 17"), "[1 16 16 -1 0]");
}

#[test]
fn clients_that_connect_find_what_they_ask_for() {
    let daemon = Daemon::new(TEN);
    let mut resp = daemon.resp();
    let id = resp.ask("CLIENT ID");
    assert!(id.parse::<u64>().is_ok(), "{id}");
    let hello = |proto| {
        format!(
            "\"server\" \"redis\" \"version\" \"7.0.15\" \"proto\" {proto} \"id\" {id} \
             \"mode\" \"standalone\" \"role\" \"master\" \"modules\" []"
        )
    };
    for (line, reply) in [
        ("HELLO", format!("[{}]", hello(2))),
        ("HELLO 3 AUTH default x SETNAME me", format!("{{{}}}", hello(3))),
        ("CLIENT GETNAME", "\"me\"".into()),
        ("CONFIG GET save", "{\"save\" \"\"}".into()),
        ("COMMAND DOCS", "{}".into()),
        ("HELLO 2", format!("[{}]", hello(2))),
        ("CONFIG GET appendonly", "[\"appendonly\" \"no\"]".into()),
        ("CONFIG GET maxmemory", "[]".into()),
        ("COMMAND DOCS", "[]".into()),
        ("COMMAND", "[]".into()),
        ("COMMAND COUNT", "16".into()),
        ("CLIENT SETNAME other", "+OK".into()),
        ("CLIENT SETINFO LIB-NAME x", "+OK".into()),
        ("CLIENT NO-EVICT on", "+OK".into()),
        ("CLIENT GETNAME", "\"other\"".into()),
        ("SELECT 0", "+OK".into()),
        ("PING", "+PONG".into()),
        ("ping hi", "\"hi\"".into()),
        ("HELLO 3", format!("{{{}}}", hello(3))),
        ("RESET", "+RESET".into()),
        ("CLIENT GETNAME", "null".into()),
        ("CONFIG GET save", "[\"save\" \"\"]".into()),
        ("CL.THROTTLE k 9 10 86400 0", "[0 10 10 -1 0]".into()),
    ] {
        assert_eq!(resp.ask(line), reply, "{line}");
    }
    assert!(resp.ask("INFO server").contains("redis_version:7.0.15"));
    assert!(resp.ask("CLIENT INFO").starts_with(&format!("\"id={id} ")));
    let other = daemon.resp().ask("CLIENT ID");
    assert_ne!(other, id);
    assert_eq!(resp.ask("QUIT"), "+OK");
    assert_eq!(resp.rest(), b"");
    assert_eq!(last_words(&daemon, b"PING\r\nQUIT\r\nPING\r\n"), "+PONG\r\n+OK\r\n");
}

#[test]
fn a_secret_is_asked_for_before_anything_else() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("secret");
    std::fs::write(&file, "sesame\n").expect("written");
    let daemon = Daemon::with(TEN, &["--secret-file", file.to_str().expect("a plain path")]);
    let mut resp = daemon.resp();
    let hello = "-NOAUTH HELLO must be called with the client already authenticated";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for (line, reply) in [
        ("PING", "-NOAUTH Authentication required."),
        ("CL.THROTTLE k 9 10 86400", "-NOAUTH Authentication required."),
        ("FOO", "-NOAUTH Authentication required."),
        ("CLIENT ID", "-NOAUTH Authentication required."),
        ("HELLO", hello),
        ("HELLO 3", hello),
        ("AUTH open", wrong),
        ("AUTH", "-ERR wrong number of arguments for 'auth' command"),
        ("AUTH other sesame", wrong),
        ("HELLO 3 AUTH default sesam", wrong),
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH sesame", "+OK"),
        ("PING", "+PONG"),
        ("RESET", "+RESET"),
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH default sesame", "+OK"),
        ("CL.THROTTLE k 9 10 86400 0", "[0 10 10 -1 0]"),
    ] {
        assert_eq!(resp.ask(line), reply, "{line}");
    }
    let mut resp = daemon.resp();
    assert!(resp.ask("HELLO 3 AUTH default sesame").starts_with("{\"server\" \"redis\""));
    assert_eq!(resp.ask("PING"), "+PONG");
    let open = Daemon::new(TEN);
    let mut resp = open.resp();
    assert!(resp.ask("AUTH x").starts_with("-ERR AUTH"));
    assert_eq!(resp.ask("AUTH default x"), "+OK");
    assert_eq!(resp.ask("AUTH other x"), wrong);
    assert_eq!(resp.ask("PING"), "+PONG");
}
