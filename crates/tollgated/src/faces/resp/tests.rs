//! What a Redis client sees, with time in the test's hand.

use std::time::Duration;

use super::replies_to;
use crate::app::{App, SharedSecret};

fn command(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len());
    for word in words {
        out += &format!("${}\r\n{word}\r\n", word.len());
    }
    out.into_bytes()
}

fn ask(app: &App, line: &str) -> String {
    let input = command(&line.split(' ').collect::<Vec<_>>());
    String::from_utf8(replies_to(&input, 0, app)).expect("text")
}

/// The five numbers of an answer to `CL.THROTTLE`.
fn throttle(app: &App, arguments: &str) -> [i64; 5] {
    let reply = ask(app, &format!("CL.THROTTLE {arguments}"));
    let lines: Vec<&str> = reply.split_terminator("\r\n").collect();
    assert_eq!(lines[0], "*5", "{reply}");
    let number =
        |line: &&str| line.strip_prefix(':').and_then(|n| n.parse().ok()).expect("a number");
    lines[1..].iter().map(number).collect::<Vec<_>>().try_into().expect("five")
}

#[test]
fn the_answers_are_those_of_redis_cell() {
    let (app, hand) = App::for_tests(Vec::new());
    for used in 1..=16 {
        let answer = throttle(&app, "user123 15 30 60");
        assert_eq!(answer, [0, 16, 16 - used, -1, 2 * used]);
    }
    assert_eq!(throttle(&app, "user123 15 30 60"), [1, 16, 0, 2, 32]);
    assert_eq!(throttle(&app, "k 0 1 2"), [0, 1, 0, -1, 2]);
    assert_eq!(throttle(&app, "k 0 1 2"), [1, 1, 0, 2, 2]);
    hand.advance(Duration::from_secs(2));
    assert_eq!(throttle(&app, "k 0 1 2"), [0, 1, 0, -1, 2]);
    assert_eq!(throttle(&app, "n 4 1 1 1"), [0, 5, 4, -1, 1]);
    assert_eq!(throttle(&app, "n 4 1 1 -1"), [0, 5, 5, -1, 0]);
    assert_eq!(throttle(&app, "f 9 1000 1"), [0, 10, 9, -1, 1]);
    assert_eq!(throttle(&app, "f 9 1000 1 9"), [0, 10, 0, -1, 1]);
    assert_eq!(throttle(&app, "f 9 1000 1"), [1, 10, 0, 1, 1]);
}

#[test]
fn the_table_of_redis_cells_own_test_holds() {
    let (app, hand) = App::for_tests(Vec::new());
    let table = [
        (0, 6, [1, 5, 5, -1, 0]),
        (0, 1, [0, 5, 4, -1, 1]),
        (0, 1, [0, 5, 3, -1, 2]),
        (0, 1, [0, 5, 2, -1, 3]),
        (0, 1, [0, 5, 1, -1, 4]),
        (0, 1, [0, 5, 0, -1, 5]),
        (0, 1, [1, 5, 0, 1, 5]),
        (3_000, 1, [0, 5, 2, -1, 3]),
        (3_100, 1, [0, 5, 1, -1, 4]),
        (4_000, 1, [0, 5, 1, -1, 4]),
        (8_000, 1, [0, 5, 4, -1, 1]),
        (9_500, 1, [0, 5, 4, -1, 1]),
        (9_500, 0, [0, 5, 4, -1, 1]),
        (9_500, 2, [0, 5, 2, -1, 3]),
        (9_500, 5, [1, 5, 2, 3, 3]),
    ];
    let mut now = 0;
    for (at, quantity, answer) in table {
        hand.advance(Duration::from_millis(at - now));
        now = at;
        assert_eq!(throttle(&app, &format!("v 4 1 1 {quantity}")), answer, "{quantity} at {at} ms");
    }
}

/// redis-cell drops what is below a millisecond, so that whoever waits as long as it says may come
/// too early.
#[test]
fn a_wait_is_rounded_up() {
    let (app, hand) = App::for_tests(Vec::new());
    assert_eq!(throttle(&app, "a 0 1 2"), [0, 1, 0, -1, 2]);
    hand.advance(Duration::from_nanos(1_999_999_999));
    assert_eq!(throttle(&app, "a 0 1 2"), [1, 1, 0, 1, 1]);
    hand.advance(Duration::from_nanos(1));
    assert_eq!(throttle(&app, "a 0 1 2"), [0, 1, 0, -1, 2]);
    // Above a million a second redis-cell divides by zero.
    assert_eq!(throttle(&app, "b 9 2000000000 1"), [0, 10, 9, -1, 1]);
}

#[test]
fn errors_are_in_redis_cells_words_and_cost_nothing() {
    let (app, _) = App::for_tests(Vec::new());
    let error = |arguments: &str| {
        let reply = ask(&app, &format!("CL.THROTTLE {arguments}"));
        let text = reply.strip_prefix("-Cell error: Store error: ").expect("an error");
        text.trim_end().to_owned()
    };
    let usage = "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    for wrong in ["k", "k 1 1", "k 1 1 1 1 1"] {
        assert_eq!(error(wrong), usage);
    }
    assert_eq!(error("k x 1 1"), "Couldn't parse as integer: x");
    assert_eq!(error("k 1 1 1 1.5"), "Couldn't parse as integer: 1.5");
    assert_eq!(
        error("k 1 99999999999999999999 1"),
        "Couldn't parse as integer: 99999999999999999999"
    );
    assert_eq!(error("k 1 0 1"), "Zero rates are not supported");
    assert_eq!(error("k 1 1 0"), "Zero rates are not supported");
    assert_eq!(error("k -1 1 1"), "max_burst must not be negative: -1");
    assert_eq!(error("k 1 1 -1"), "period must not be negative: -1");
    assert_eq!(error("k 1 1 31536001"), "Rate out of range: period must be at most 365 days");
    assert_eq!(error("k 9223372036854775807 1 1"), "max_burst must be below 2^62");
    let granule = "max_burst + 1 must be a multiple of 64 at this rate";
    assert_eq!(error("k 9 1000000000000 1"), granule);
    assert_eq!(throttle(&app, "k 1 1 1"), [0, 2, 1, -1, 1]);
    let counts = app.service.brought_counts();
    assert_eq!((counts.allowed, app.service.keys_used().1), (1, 1));
}

#[test]
fn any_bytes_are_a_key() {
    let (app, _) = App::for_tests(Vec::new());
    for key in
        [&b"\xff"[..], b"\xfe", b"a\0", b"a", b"a\r\n", "\u{e9}".as_bytes(), "e\u{301}".as_bytes()]
    {
        let mut input = format!("*5\r\n$11\r\ncl.throttle\r\n${}\r\n", key.len()).into_bytes();
        input.extend(key);
        input.extend(b"\r\n$1\r\n0\r\n$1\r\n1\r\n$2\r\n60\r\n");
        assert!(replies_to(&input, 0, &app).starts_with(b"*5\r\n:0\r\n"), "{key:?} is its own");
        assert!(replies_to(&input, 0, &app).starts_with(b"*5\r\n:1\r\n"));
    }
}

#[test]
fn what_clients_say_at_connect_is_answered() {
    let (app, _) = App::for_tests(Vec::new());
    for (line, reply) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("CLIENT SETNAME worker", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("CLIENT SETINFO LIB-NAME x", "+OK\r\n"),
        (
            "CLIENT MAINT_NOTIFICATIONS ON",
            "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n",
        ),
        ("COMMAND", "*0\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        ("COMMAND COUNT", ":16\r\n"),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
        ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET appendonly", "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
        ("CONFIG GET x", "*0\r\n"),
        ("QUIT", "+OK\r\n"),
        ("RESET", "+RESET\r\n"),
        ("DBSIZE", ":0\r\n"),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 X", "-ERR Syntax error in HELLO option 'X'\r\n"),
        ("GET", "-ERR unknown command 'GET', with args beginning with: \r\n"),
        ("FOO u 15", "-ERR unknown command 'FOO', with args beginning with: 'u' '15' \r\n"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
    ] {
        assert_eq!(ask(&app, line), reply, "{line}");
    }
}

#[test]
fn hello_3_speaks_resp3_from_its_own_reply_on() {
    let (app, _) = App::for_tests(Vec::new());
    let reply = ask(&app, "HELLO 3");
    let expected = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n\
                    $5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n\
                    $4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
    assert_eq!(reply, expected);
    assert!(ask(&app, "HELLO 2").starts_with("*14\r\n"));
    assert!(ask(&app, "HELLO").starts_with("*14\r\n"));
    let input =
        [command(&["HELLO", "3", "SETNAME", "me"]), command(&["CLIENT", "GETNAME"])].concat();
    assert!(replies_to(&input, 0, &app).ends_with(b"$2\r\nme\r\n"));
    let input = [command(&["HELLO", "3"]), command(&["CLIENT", "GETNAME"])].concat();
    assert!(replies_to(&input, 0, &app).ends_with(b"*0\r\n_\r\n"));
}

#[test]
fn a_secret_is_asked_for_before_anything_else() {
    let (mut app, _) = App::for_tests(Vec::new());
    app.secret = SharedSecret::read(b"sesame");
    for line in ["PING", "CL.THROTTLE k 1 1 1", "FOO", "CLIENT ID"] {
        assert_eq!(ask(&app, line), "-NOAUTH Authentication required.\r\n", "{line}");
    }
    assert!(ask(&app, "HELLO 3").starts_with("-NOAUTH "));
    assert!(ask(&app, "AUTH wrong").starts_with("-WRONGPASS "));
    assert!(ask(&app, "AUTH other sesame").starts_with("-WRONGPASS "));
    for door in [vec!["AUTH", "sesame"], vec!["HELLO", "2", "AUTH", "default", "sesame"]] {
        let input = [command(&door), command(&["PING"]), command(&["RESET"]), command(&["PING"])];
        let replies = replies_to(&input.concat(), 0, &app);
        let end = b"+PONG\r\n+RESET\r\n-NOAUTH Authentication required.\r\n";
        assert!(replies.ends_with(end), "{}", String::from_utf8_lossy(&replies));
    }
}

#[test]
fn wherever_a_read_ends_the_replies_are_the_same() {
    let input = [
        command(&["CL.THROTTLE", "k", "100", "1", "60", "2"]),
        b"PING\r\n\r\n".to_vec(),
        command(&["CL.THROTTLE", "k", "100", "1", "60", "3"]),
        b"*1\r\n$4\r\nPIN".to_vec(),
    ]
    .concat();
    let at = |split| replies_to(&input, split, &App::for_tests(Vec::new()).0);
    let whole = at(0);
    assert!(whole.ends_with(b":101\r\n:96\r\n:-1\r\n:300\r\n"));
    for split in 1..input.len() {
        assert_eq!(at(split), whole, "{split}");
    }
}

/// A page of the web can have a browser post any text to a loopback address.
#[test]
fn a_browser_is_not_served() {
    let (app, _) = App::for_tests(Vec::new());
    let input = b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nCL.THROTTLE k 1 1 1\r\n";
    let replies = replies_to(input, 0, &app);
    assert_eq!(replies, b"-ERR this door speaks the Redis protocol, not HTTP\r\n");
    assert_eq!(app.service.brought_counts().allowed, 0);
}

/// redis-py's pipelines are transactions unless they are told not to be.
#[test]
fn what_is_kept_since_multi_is_answered_at_exec() {
    let (app, _) = App::for_tests(Vec::new());
    let said = |lines: &[&str]| {
        let input: Vec<u8> =
            lines.iter().flat_map(|line| command(&line.split(' ').collect::<Vec<_>>())).collect();
        String::from_utf8(replies_to(&input, 0, &app)).expect("text")
    };
    let throttle = "CL.THROTTLE k 15 30 60";
    let one = |left: u64, reset: u64| format!("*5\r\n:0\r\n:16\r\n:{left}\r\n:-1\r\n:{reset}\r\n");
    let expected = format!(
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n{}+PONG\r\n{}",
        one(15, 2),
        one(14, 4)
    );
    assert_eq!(said(&["MULTI", throttle, "PING", throttle, "EXEC"]), expected);
    assert_eq!(said(&["MULTI", throttle, "DISCARD"]), "+OK\r\n+QUEUED\r\n+OK\r\n");
    let broken = said(&["MULTI", throttle, "NOPE", "EXEC"]);
    let end = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert!(broken.ends_with(end), "{broken}");
    assert!(said(&["MULTI", "MULTI"]).contains("can not be nested"));
    // Two were charged, and nothing that was given up.
    assert_eq!(app.service.brought_counts().allowed, 2);
    let long = "a".repeat(60_000);
    let mut input = command(&["MULTI"]);
    (0..20).for_each(|_| input.extend(command(&["ECHO", &long])));
    input.extend(command(&["EXEC"]));
    let replies = String::from_utf8(replies_to(&input, 0, &app)).expect("text");
    assert!(replies.contains("too much is queued") && replies.ends_with(end), "{replies}");
}

#[test]
fn after_bytes_that_are_no_command_nothing_more_is_answered() {
    let (app, _) = App::for_tests(Vec::new());
    let input = [command(&["PING"]), b"*1\r\nPING\r\n".to_vec(), command(&["PING"])].concat();
    let replies = String::from_utf8(replies_to(&input, 0, &app)).expect("text");
    assert_eq!(replies, "+PONG\r\n-ERR Protocol error: expected '$', got 'P'\r\n");
}
