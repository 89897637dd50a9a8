//! Whatever bytes a replica is sent or finds on its disk: each is an error, or what the same bytes
//! encode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::coordinator::{Answer, Command, Document, Refused, RingChange, State};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(command) = Command::decode(bytes) {
        assert_eq!(command.encode(), bytes);
        assert_eq!(Command::decode(&command.encode()), Ok(command));
    }
    if let Ok(answer) = Answer::decode(bytes) {
        assert_eq!(answer.encode(), bytes);
    }
    if let Ok(refused) = Refused::decode(bytes) {
        assert_eq!(refused.encode(), bytes);
    }
    if let Ok(change) = RingChange::decode(bytes) {
        assert_eq!(change.encode(), bytes);
    }
    if let Ok(document) = Document::decode(bytes) {
        assert_eq!(document.encode(), bytes);
    }
    if let Ok(state) = State::decode(bytes) {
        assert_eq!(state.encode(), bytes);
    }
});
