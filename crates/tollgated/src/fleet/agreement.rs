//! What the fleet has agreed on, asked of the coordinator by this member's session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tollgate::NodeId;
use tollgate::coordinator::{Answer, Command, Document, Revision};
use tollgate_tokio::{AskError, Fleet};

use crate::agreement::{Agreement, Later, ProposeError, StoreError};
use crate::coordinator::{self, Kept, NodeLine, Question, Reply};

/// The policy in force on this member, kept where its enforcer puts it.
#[derive(Debug, Clone, Default)]
pub(crate) struct InForce(Arc<Mutex<Option<Arc<Document>>>>);

impl InForce {
    pub(crate) fn put(&self, document: &Document) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(document.clone()));
    }

    pub(crate) fn get(&self) -> Option<Arc<Document>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A fleet's agreement, as its member reaches it.
#[derive(Debug, Clone)]
pub(crate) struct FleetAgreement {
    fleet: Fleet,
    in_force: InForce,
}

impl FleetAgreement {
    pub(crate) fn new(fleet: Fleet, in_force: InForce) -> Self {
        Self { fleet, in_force }
    }

    async fn ask(&self, question: &Question) -> Result<Reply, Unanswered> {
        let began = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(began.elapsed());
            match timeout(left, self.fleet.ask(question.encode())).await {
                Ok(Ok(bytes)) => {
                    let reply = Reply::decode(&bytes);
                    return reply.map_err(|error| Unanswered::Malformed(error.to_string()));
                }
                // A connection may be about to be made.
                Ok(Err(AskError::NotAsked)) if left > RETRY_AFTER => sleep(RETRY_AFTER).await,
                Ok(Err(AskError::NotAsked)) => return Err(Unanswered::NotConnected),
                Ok(Err(AskError::Lost)) | Err(_) => return Err(Unanswered::Late),
            }
        }
    }

    async fn read(&self, question: &Question) -> Result<Reply, StoreError> {
        let reply = self.ask(question).await;
        reply.map_err(|unanswered| StoreError(unanswered.to_string()))
    }
}

/// Why a question has no answer.
enum Unanswered {
    NotConnected,
    Late,
    Malformed(String),
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotConnected => {
                f.write_str("this daemon has no connection to any replica of the coordinator")
            }
            Self::Late => write!(f, "no replica has answered within {PATIENCE:?}"),
            Self::Malformed(why) => write!(f, "a replica's answer can't be read: {why}"),
        }
    }
}

impl Agreement for FleetAgreement {
    fn propose(&self, command: Command) -> Later<'_, Result<Answer, ProposeError>> {
        Box::pin(async move {
            let reply = match self.ask(&Question::Propose(command.encode())).await {
                Ok(reply) => reply,
                Err(Unanswered::NotConnected) => {
                    return Err(ProposeError::NoLeader { waited: PATIENCE });
                }
                Err(Unanswered::Late | Unanswered::Malformed(_)) => {
                    return Err(ProposeError::TimedOut { waited: PATIENCE });
                }
            };
            let applied = reply.applied();
            if let Ok(Answer::Revised { revision }) = applied {
                // Whoever asks this daemon next is to find it; that it is agreed on is true anyhow.
                let mut status = self.fleet.status();
                let in_force = status.wait_for(|status| status.revision >= revision);
                let _ = timeout(IN_FORCE_WITHIN, in_force).await;
            }
            applied.map_err(|error| match error {
                coordinator::ProposeError::Refused(refused) => ProposeError::Refused(refused),
                coordinator::ProposeError::NoLeader => ProposeError::NoLeader { waited: PATIENCE },
                coordinator::ProposeError::Unknown(_) => {
                    ProposeError::TimedOut { waited: PATIENCE }
                }
                error @ (coordinator::ProposeError::TooLarge { .. }
                | coordinator::ProposeError::Failed(_)) => {
                    ProposeError::Store(StoreError(error.to_string()))
                }
            })
        })
    }

    fn policy(&self) -> Later<'_, Result<Option<Arc<Document>>, StoreError>> {
        Box::pin(std::future::ready(Ok(self.in_force.get())))
    }

    fn history(&self) -> Later<'_, Result<Vec<Kept>, StoreError>> {
        Box::pin(async move {
            match self.read(&Question::History).await? {
                Reply::History(kept) => Ok(kept),
                other => Err(astray(&other)),
            }
        })
    }

    fn nodes(&self) -> Later<'_, Result<Vec<NodeLine>, StoreError>> {
        Box::pin(async move {
            match self.read(&Question::Nodes).await? {
                Reply::Nodes(nodes) => Ok(nodes),
                other => Err(astray(&other)),
            }
        })
    }

    fn remove(&self, node: NodeId) -> Later<'_, Result<(), ProposeError>> {
        Box::pin(async move {
            let began = Instant::now();
            loop {
                let reply = self.ask(&Question::Remove(node.get())).await;
                // Which replica leads is known a little later than that it does.
                if matches!(reply, Ok(Reply::NotLeader)) && began.elapsed() < PATIENCE {
                    sleep(RETRY_AFTER).await;
                    continue;
                }
                return match reply {
                    Ok(Reply::Removed) => Ok(()),
                    Ok(Reply::NotProposed(why)) => Err(ProposeError::Declined(why)),
                    Ok(Reply::NotLeader) | Err(Unanswered::NotConnected) => {
                        Err(ProposeError::NoLeader { waited: PATIENCE })
                    }
                    Ok(_other) => Err(ProposeError::TimedOut { waited: PATIENCE }),
                    Err(Unanswered::Late | Unanswered::Malformed(_)) => {
                        Err(ProposeError::TimedOut { waited: PATIENCE })
                    }
                };
            }
        })
    }

    fn backup(&self) -> Later<'_, Result<Vec<u8>, StoreError>> {
        Box::pin(async move {
            match self.read(&Question::Backup).await? {
                Reply::Backup(bytes) => Ok(bytes),
                other => Err(astray(&other)),
            }
        })
    }

    fn document(&self, revision: Revision) -> Later<'_, Result<Option<Arc<Document>>, StoreError>> {
        Box::pin(async move {
            match self.read(&Question::Document(revision.get())).await? {
                Reply::Document(None) => Ok(None),
                Reply::Document(Some(bytes)) => {
                    let document = Document::decode(&bytes);
                    document.map(|one| Some(Arc::new(one))).map_err(|e| StoreError(e.to_string()))
                }
                other => Err(astray(&other)),
            }
        })
    }
}

fn astray(reply: &Reply) -> StoreError {
    StoreError(match reply {
        Reply::Malformed(why) | Reply::NotProposed(why) => why.clone(),
        _other => "the answer is to another question".into(),
    })
}

/// How long an answer is waited for: a replica tries for 5 s, and whoever asked this daemon waits
/// for 10 s.
const PATIENCE: Duration = Duration::from_secs(7);
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// How long a policy that was agreed on may take to be in force here.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(1);
