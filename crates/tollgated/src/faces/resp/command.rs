//! What each command answers: `CL.THROTTLE`, and what clients say when they connect.
//!
//! The connection's own state is here (protocol, name); decisions are the service's.

use std::borrow::Cow;

use tollgate::mutant::lacks;

use super::parse::Words;
use super::reply::{Protocol, Replies};
use super::throttle;
use crate::app::{App, SharedSecret};
use crate::face::Face;
use crate::service::Service;

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) protocol: Protocol,
    /// Its number, as `CLIENT ID` tells it.
    id: u64,
    name: Vec<u8>,
    /// Commands since `MULTI`, if it was said.
    queue: Option<Queue>,
    /// Whether the client may ask for more than to be let in.
    is_admitted: bool,
    /// Whether nothing need be shown to be let in.
    is_open: bool,
    /// Whether the connection ends when the replies so far are sent.
    pub(crate) ends: bool,
}

impl Session {
    /// A connection that has said nothing yet; with `is_open`, no password is asked for.
    pub(crate) fn new(id: u64, is_open: bool) -> Self {
        let (protocol, name) = (Protocol::Resp2, Vec::new());
        Self { protocol, id, name, queue: None, is_admitted: is_open, is_open, ends: false }
    }

    /// Answers one command.
    pub(crate) fn answer(&mut self, words: &Words<'_>, app: &App, out: &mut Vec<u8>) {
        let Some((name, arguments)) = words.split_first() else { return };
        if self.queue.is_some() && !QUEUE_ENDS.iter().any(|end| name.eq_ignore_ascii_case(end)) {
            return self.keep(words, out);
        }
        let service = &*app.service;
        let mut replies = Replies { out, protocol: self.protocol };
        if name.eq_ignore_ascii_case(b"CL.THROTTLE") && self.is_admitted {
            return throttle::answer(arguments, service, &mut replies);
        }
        let http = !lacks("browsers_served");
        if http && [&b"POST"[..], b"HOST:"].iter().any(|http| name.eq_ignore_ascii_case(http)) {
            // A browser that was led here by a page must not get to the commands in its body.
            service.metrics().malformed(Face::Resp);
            self.ends = true;
            return replies.error("ERR this door speaks the Redis protocol, not HTTP");
        }
        let known = COMMANDS.iter().find(|command| command.is(name));
        if !self.is_admitted && !known.is_some_and(|command| command.admits) {
            return replies.error("NOAUTH Authentication required.");
        }
        let Some(command) = known else {
            return replies.error(&unknown(words));
        };
        if !command.arguments.contains(&arguments.len()) {
            return replies.error(&wrong_number(command.name));
        }
        (command.answer)(self, words, app, &mut replies);
    }

    /// Bytes that are kept for `EXEC`.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes.min(QUEUE_BYTES_MAX))
    }

    /// Keeps a command for `EXEC`.
    fn keep(&mut self, words: &Words<'_>, out: &mut Vec<u8>) {
        let Some(queue) = &mut self.queue else { return };
        let mut replies = Replies { out, protocol: self.protocol };
        let known = COMMANDS.iter().any(|command| command.is(&words[0]));
        queue.bytes += words.iter().map(|word| word.len() + WORD_COST).sum::<usize>();
        if !known && !words[0].eq_ignore_ascii_case(b"CL.THROTTLE") {
            queue.broken = true;
            replies.error(&unknown(words));
        } else if queue.bytes > QUEUE_BYTES_MAX {
            queue.broken = true;
            queue.commands = Vec::new();
            replies.error("ERR too much is queued since MULTI");
        } else {
            queue.commands.push(words.iter().map(|word| Cow::Owned(word.to_vec())).collect());
            replies.simple("QUEUED");
        }
    }

    /// Answers the commands that were kept, one by one: nothing comes between them on this
    /// connection, and none depends on another.
    fn execute(&mut self, app: &App, replies: &mut Replies<'_>) {
        let Some(queue) = self.queue.take() else {
            return replies.error("ERR EXEC without MULTI");
        };
        if queue.broken {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return replies.error(text);
        }
        replies.array(queue.commands.len());
        for words in &queue.commands {
            self.answer(words, app, replies.out);
        }
    }

    /// Lets the client in if it shows the secret, as the user `default`.
    fn authenticate(
        &mut self,
        user: &[u8],
        password: &[u8],
        secret: Option<&SharedSecret>,
    ) -> bool {
        let admitted = user == b"default" && secret.is_none_or(|secret| secret.is(password));
        self.is_admitted |= admitted;
        admitted
    }

    fn hello(&mut self, words: &Words<'_>, app: &App, replies: &mut Replies<'_>) {
        let mut arguments = words[1..].iter();
        let mut protocol = self.protocol;
        if let Some(version) = arguments.next() {
            protocol = match std::str::from_utf8(version).ok().and_then(|v| v.parse::<i64>().ok()) {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return replies.error("NOPROTO unsupported protocol version"),
                None => {
                    let text = "ERR Protocol version is not an integer or out of range";
                    return replies.error(text);
                }
            };
        }
        let mut name = None;
        while let Some(option) = arguments.next() {
            if option.eq_ignore_ascii_case(b"AUTH") && arguments.len() >= 2 {
                let (user, password) = (arguments.next(), arguments.next());
                let (Some(user), Some(password)) = (user, password) else { return };
                if !self.authenticate(user, password, app.secret.as_ref()) {
                    return replies.error(WRONG_PASSWORD);
                }
            } else if option.eq_ignore_ascii_case(b"SETNAME") && arguments.len() >= 1 {
                name = arguments.next();
            } else {
                let option = shown(option);
                return replies.error(&format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
        if !self.is_admitted {
            return replies
                .error("NOAUTH HELLO must be called with the client already authenticated");
        }
        if let Some(name) = name {
            if !is_name(name) {
                return replies.error(BAD_NAME);
            }
            self.name = name.to_vec();
        }
        self.protocol = protocol;
        replies.protocol = protocol;
        self.describe(replies);
    }

    fn describe(&self, replies: &mut Replies<'_>) {
        replies.map(7);
        replies.bulk(b"server");
        replies.bulk(b"redis");
        replies.bulk(b"version");
        replies.bulk(SPOKEN_VERSION.as_bytes());
        replies.bulk(b"proto");
        replies.integer(if self.protocol == Protocol::Resp3 { 3 } else { 2 });
        replies.bulk(b"id");
        replies.integer(self.id as i64);
        replies.bulk(b"mode");
        replies.bulk(b"standalone");
        replies.bulk(b"role");
        replies.bulk(b"master");
        replies.bulk(b"modules");
        replies.array(0);
    }

    fn client(&mut self, words: &Words<'_>, replies: &mut Replies<'_>) {
        let is = |name: &str| words[1].eq_ignore_ascii_case(name.as_bytes());
        match words.len() - 2 {
            0 if is("ID") => replies.integer(self.id as i64),
            0 if is("GETNAME") && self.name.is_empty() => replies.null(),
            0 if is("GETNAME") => replies.bulk(&self.name),
            0 if is("INFO") => {
                let name = String::from_utf8_lossy(&self.name);
                let proto = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
                replies.bulk(format!("id={} name={name} resp={proto}\n", self.id).as_bytes());
            }
            1 if is("SETNAME") && !is_name(&words[2]) => replies.error(BAD_NAME),
            1 if is("SETNAME") => {
                self.name = words[2].to_vec();
                replies.simple("OK");
            }
            1 if is("NO-EVICT") || is("NO-TOUCH") => replies.simple("OK"),
            2 if is("SETINFO") => replies.simple("OK"),
            _ => {
                let name = shown(&words[1]);
                replies.error(&format!("ERR unknown subcommand '{name}'. Try CLIENT HELP."));
            }
        }
    }
}

/// What a client had kept for `EXEC`.
#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Words<'static>>,
    bytes: usize,
    /// Whether one of them could not be kept, so that none is to be executed.
    broken: bool,
}

/// What is not kept between `MULTI` and `EXEC`.
const QUEUE_ENDS: [&[u8]; 6] = [b"EXEC", b"DISCARD", b"MULTI", b"WATCH", b"RESET", b"QUIT"];
/// Bytes of commands that are kept for `EXEC`: some five thousand throttles.
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// What a kept word takes besides its bytes.
const WORD_COST: usize = 32;

/// A command, how many arguments it takes, and how it is answered.
struct Command {
    name: &'static str,
    arguments: std::ops::RangeInclusive<usize>,
    /// Whether it may be said by a client that was not let in yet.
    admits: bool,
    answer: Answer,
}

type Answer = fn(&mut Session, &Words<'_>, &App, &mut Replies<'_>);

impl Command {
    const fn new(
        name: &'static str,
        arguments: std::ops::RangeInclusive<usize>,
        answer: Answer,
    ) -> Self {
        Self { name, arguments, admits: false, answer }
    }

    /// A command that may be said by anybody.
    const fn open(
        name: &'static str,
        arguments: std::ops::RangeInclusive<usize>,
        answer: Answer,
    ) -> Self {
        Self { name, arguments, admits: true, answer }
    }

    fn is(&self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.name.as_bytes())
    }
}

/// All commands but `CL.THROTTLE`.
const COMMANDS: [Command; 15] = [
    Command::new("ping", 0..=1, |_, words, _, replies| match words.get(1) {
        Some(text) => replies.bulk(text),
        None => replies.simple("PONG"),
    }),
    Command::new("echo", 1..=1, |_, words, _, replies| replies.bulk(&words[1])),
    Command::open("hello", 0..=MANY, |session, words, app, replies| {
        session.hello(words, app, replies);
    }),
    Command::new("client", 1..=MANY, |session, words, _, replies| session.client(words, replies)),
    Command::open("auth", 1..=2, auth),
    Command::new("select", 1..=1, select),
    Command::new("command", 0..=MANY, command),
    Command::new("config", 1..=MANY, |_, words, _, replies| config(words, replies)),
    Command::new("info", 0..=MANY, |_, _, app, replies| {
        replies.bulk(info(&app.service).as_bytes());
    }),
    Command::new("dbsize", 0..=0, |_, _, app, replies| {
        let (of_limits, brought) = app.service.keys_used();
        replies.integer((of_limits + brought) as i64);
    }),
    Command::new("multi", 0..=0, |session, _, _, replies| {
        if session.queue.is_some() {
            return replies.error("ERR MULTI calls can not be nested");
        }
        session.queue = Some(Queue::default());
        replies.simple("OK");
    }),
    Command::new("exec", 0..=0, |session, _, app, replies| session.execute(app, replies)),
    Command::new("discard", 0..=0, |session, _, _, replies| match session.queue.take() {
        Some(_) => replies.simple("OK"),
        None => replies.error("ERR DISCARD without MULTI"),
    }),
    Command::open("quit", 0..=MANY, |session, _, _, replies| {
        session.ends = true;
        replies.simple("OK");
    }),
    Command::open("reset", 0..=0, |session, _, _, replies| {
        *session = Session::new(session.id, session.is_open);
        replies.protocol = session.protocol;
        replies.simple("RESET");
    }),
];

fn auth(session: &mut Session, words: &Words<'_>, app: &App, replies: &mut Replies<'_>) {
    let (user, password) = match &words[1..] {
        [_] if app.secret.is_none() => {
            return replies.error("ERR AUTH with a password alone, but no password is configured");
        }
        [password] => (&b"default"[..], password),
        [user, password] => (&**user, password),
        _ => return,
    };
    if session.authenticate(user, password, app.secret.as_ref()) {
        replies.simple("OK");
    } else {
        replies.error(WRONG_PASSWORD);
    }
}

fn select(_: &mut Session, words: &Words<'_>, _: &App, replies: &mut Replies<'_>) {
    match std::str::from_utf8(&words[1]).map(str::parse::<i64>) {
        Ok(Ok(0)) => replies.simple("OK"),
        Ok(Ok(_)) => replies.error("ERR DB index is out of range"),
        _ => replies.error("ERR value is not an integer or out of range"),
    }
}

/// Clients that ask for descriptions do without.
fn command(_: &mut Session, words: &Words<'_>, _: &App, replies: &mut Replies<'_>) {
    let is = |name: &[u8]| words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(name));
    if is(b"COUNT") {
        replies.integer(COMMANDS.len() as i64 + 1);
    } else if is(b"DOCS") {
        replies.map(0);
    } else {
        replies.array(0);
    }
}

/// redis-benchmark asks for two settings, and shows what it is told.
fn config(words: &Words<'_>, replies: &mut Replies<'_>) {
    if !words[1].eq_ignore_ascii_case(b"GET") || words.len() < 3 {
        let name = shown(&words[1]);
        return replies.error(&format!("ERR unknown subcommand '{name}'. Try CONFIG HELP."));
    }
    let known = [("save", ""), ("appendonly", "no")];
    let asked =
        |name: &str| words[2..].iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let found: Vec<_> = known.into_iter().filter(|(name, _)| asked(name)).collect();
    replies.map(found.len());
    for (name, value) in found {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

fn info(service: &Service) -> String {
    format!(
        "# Server\r\nredis_version:{SPOKEN_VERSION}\r\ntollgate_version:{}\r\n\
         redis_mode:standalone\r\n\
         \r\n# Tollgate\r\nlimits_revision:{}\r\nkeys:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        service.revision(),
        service.keys_used().0 + service.keys_used().1,
    )
}

/// A client's name has no blanks, as in redis.
fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_BYTES_MAX && name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

fn unknown(words: &Words<'_>) -> String {
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(&words[0]));
    for word in words[1..].iter().take(4) {
        text.push_str(&format!("'{}' ", shown(word)));
    }
    text
}

/// A client's word in an error: its beginning.
fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// The version of redis whose manners these are: some clients choose by it.
const SPOKEN_VERSION: &str = "7.0.15";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
const MANY: usize = super::parse::WORDS_MAX;
const NAME_BYTES_MAX: usize = 256;
const SHOWN_BYTES_MAX: usize = 128;
