//! What a daemon asks the coordinator for people: carried to a replica by the session, and nothing
//! of it is known here.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use tollgate::NodeId;

use super::Driver;
use crate::wire::Ask;

/// Questions that were not answered yet.
#[derive(Debug, Default)]
pub(super) struct Questions {
    asked: BTreeMap<u64, (NodeId, Answer)>,
    last: u64,
}

/// Where an answer goes.
pub(crate) type Answer = oneshot::Sender<Result<Vec<u8>, AskError>>;

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskError {
    /// It was not asked: no connection to a replica stands.
    NotAsked,
    /// The connection was lost before the answer came: the question may have been heard.
    Lost,
}

impl Driver {
    /// Asks a replica, the leader if a connection to it stands.
    pub(super) fn ask(&mut self, body: Vec<u8>, answer: Answer) {
        let questions = &mut self.state.questions;
        questions.asked.retain(|_, (_, waits)| !waits.is_closed());
        if questions.asked.len() >= QUESTIONS_MAX {
            let _ = answer.send(Err(AskError::NotAsked));
            return;
        }
        questions.last += 1;
        let number = questions.last;
        let ask = Ask::Other { number, body };
        let asked = self.replicas.connected().find(|replica| self.replicas.ask_one(*replica, &ask));
        match asked {
            Some(replica) => drop(self.state.questions.asked.insert(number, (replica, answer))),
            None => drop(answer.send(Err(AskError::NotAsked))),
        }
    }

    /// A replica answers.
    pub(super) fn answered(&mut self, number: u64, body: Vec<u8>) {
        if let Some((_, waits)) = self.state.questions.asked.remove(&number) {
            let _ = waits.send(Ok(body));
        }
    }

    /// A connection is gone, and with it what was asked on it: whoever waits finds it
    /// [lost](AskError::Lost).
    pub(super) fn forget_questions(&mut self, replica: NodeId) {
        self.state.questions.asked.retain(|_, (asked, _)| *asked != replica);
    }
}

/// Questions under way.
const QUESTIONS_MAX: usize = 64;
