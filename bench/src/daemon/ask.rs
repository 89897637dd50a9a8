//! One question to a server, to see that it is there and decides: what is measured must be the work
//! that the row says.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Sends `request` to a port of this machine and reads until the answer has `expected` in it.
///
/// # Errors
///
/// What came instead, when the server closed or was silent for too long.
pub fn ask(port: u16, request: &str, expected: &str) -> Result<String, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = String::new();
    let mut buffer = [0; 4096];
    while !answer.contains(expected) && answer.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.push_str(&String::from_utf8_lossy(&buffer[..count])),
        }
    }
    if answer.contains(expected) {
        return Ok(answer);
    }
    Err(format!("it answered {answer:?} where {expected:?} was expected"))
}

/// A command of words without spaces, in the Redis protocol.
pub fn resp(words: &str) -> String {
    resp_words(&words.split(' ').collect::<Vec<_>>())
}

pub fn resp_words(words: &[&str]) -> String {
    let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    let bulks: String = words.iter().map(bulk).collect();
    format!("*{}\r\n{bulks}", words.len())
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

pub fn post(path: &str, json: &str) -> String {
    let length = json.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
    )
}

const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 1 << 16;
