//! Connections between members over real sockets, with others that are slow, wrong, hung or gone.
//!
//! Time is virtual. It stands still, so that nobody is taken for gone while the system takes its
//! time, until a test lets it [pass](Still::pass).

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tollgate::{FleetLimitId, KeyId, NodeId};

use crate::door::{Door, Routes};
use crate::links::{Inbox, Links, PEER_FRAME_MAX};
use crate::sessions::{Heard, Replicas};
use crate::wire::{
    self, Ask, FrameReader, Hello, HelloError, Host, Inquiry, KeyName, PeerFrame, PeerSecret,
    Purpose, Tell, Told, put_frame,
};

const FLEET: u64 = 7;

fn node(number: u32) -> NodeId {
    NodeId::new(number)
}

fn secret() -> PeerSecret {
    PeerSecret::new(b"open sesame")
}

fn hello(of: u32) -> Hello {
    Hello { fleet: FLEET, purpose: Purpose::Peer, to: None, node: Some(node(of)), start: 1 }
}

/// As long as this lives no time passes.
struct Still(std::sync::mpsc::Sender<()>);

impl Still {
    /// While a blocking task runs, the virtual clock does not go on by itself.
    fn new() -> Self {
        let (ends, end) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || end.recv().is_ok());
        Self(ends)
    }

    /// From now on time passes where nothing else is left to do.
    fn pass(self) {
        drop(self.0);
    }
}

/// A member with a door, links and an inbox.
struct Member {
    address: String,
    routes: Arc<Routes>,
    links: Links,
    inbox: Inbox,
}

impl Member {
    async fn new(number: u32) -> Self {
        let here = "127.0.0.1:0".parse().expect("an address");
        let door = Door::bind(here, secret()).await.expect("a port");
        let (address, routes) = (door.address().to_string(), door.routes());
        routes.set_member(FLEET, node(number));
        let arrivals = routes.take(Purpose::Peer);
        tokio::spawn(door.run());
        let (links, inbox) = Links::new(hello(number), secret());
        links.listen(arrivals);
        Self { address, routes, links, inbox }
    }

    /// A connection to it by hand.
    async fn dialled_by(&self, number: u32) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.expect("connected");
        let hello = Hello { to: None, ..hello(number) };
        wire::introduce(&mut stream, &secret(), &hello).await.expect("introduced");
        stream
    }

    async fn hears(&mut self) -> (NodeId, PeerFrame) {
        self.inbox.recv().await.expect("a frame")
    }
}

/// Somebody at an address, by hand, who is node `number`.
struct Other {
    listener: TcpListener,
    number: u32,
}

impl Other {
    async fn new(number: u32) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        (Self { listener, number }, address)
    }

    async fn meets(&self) -> (TcpStream, Hello) {
        let host = Host { fleet: FLEET, node: Some(node(self.number)) };
        loop {
            let (mut stream, _) = self.listener.accept().await.expect("accepted");
            if let Ok(hello) = wire::answer(&mut stream, &secret(), host, |_| true).await {
                return (stream, hello);
            }
        }
    }
}

fn framed(frame: &PeerFrame) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, |out| frame.encode(out));
    bytes
}

fn who_is(number: u64) -> PeerFrame {
    PeerFrame::Inquiry(number, Inquiry::Names(vec![KeyId::from_bits(number, 0)]))
}

async fn is_hung_up_on(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // Whether what was not read resets the connection is the system's.
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
}

async fn linked(member: &Member, count: u64) {
    while member.links.status().connected < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_closes_its_connection_and_is_counted() {
    let _still = Still::new();
    let member = Member::new(2).await;
    let nonsense: [&[u8]; 4] = [
        &(PEER_FRAME_MAX + 1).to_le_bytes(), // Longer than any message.
        &[0, 0, 0, 0],                       // Empty.
        &[1, 0, 0, 0, 99],                   // Of no kind.
        &[3, 0, 0, 0, 1, 0xff, 0xff],        // Reports that end too early.
    ];
    for (sent, bytes) in nonsense.into_iter().enumerate() {
        let mut stream = member.dialled_by(3).await;
        stream.write_all(bytes).await.expect("sent");
        is_hung_up_on(stream).await;
        assert_eq!(member.links.status().malformed, sent as u64 + 1);
    }
    assert!(member.inbox.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_makes_no_sense_closes_the_link_and_is_counted() {
    let still = Still::new();
    let mut member = Member::new(2).await;
    let (other, address) = Other::new(3).await;
    member.links.set_nodes(&[(node(3), address)]);
    let (mut stream, hello) = other.meets().await;
    assert_eq!((hello.node, hello.to), (Some(node(2)), Some(node(3))));
    stream.write_all(&[1, 0, 0, 0, 99]).await.expect("sent");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(member.links.status().malformed, 1);
    // And is made again.
    still.pass();
    let _ = other.meets().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dials_again_is_heard_on_both_connections_until_the_old_one_ends() {
    let _still = Still::new();
    let mut member = Member::new(2).await;
    let (mut first, mut second) = (member.dialled_by(3).await, member.dialled_by(3).await);
    first.write_all(&framed(&who_is(1))).await.expect("sent");
    assert_eq!(member.hears().await, (node(3), who_is(1)));
    second.write_all(&framed(&who_is(2))).await.expect("sent");
    assert_eq!(member.hears().await, (node(3), who_is(2)));
    drop(first);
    second.write_all(&framed(&who_is(3))).await.expect("sent");
    assert_eq!(member.hears().await, (node(3), who_is(3)));
}

/// Half-open: the other end is gone and nobody said so.
#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_ping_is_hung_up_on() {
    let still = Still::new();
    let member = Member::new(2).await;
    let stream = member.dialled_by(3).await;
    still.pass();
    is_hung_up_on(stream).await;
    assert_eq!(member.links.status().malformed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_stops_reading_keeps_nobody_from_the_others() {
    let still = Still::new();
    let mut member = Member::new(2).await;
    let mut sound = Member::new(4).await;
    let (stuck, address) = Other::new(3).await;
    member.links.set_nodes(&[(node(3), address), (node(4), sound.address.clone())]);
    let (_unread, _) = stuck.meets().await;
    linked(&member, 2).await;
    let keys = (0..1_024).map(|n| KeyId::from_bits(n, 0)).collect();
    let long = PeerFrame::Inquiry(1, Inquiry::Names(keys));
    let before = member.links.status().dropped;
    while member.links.status().dropped == before {
        member.links.send(node(3), &long);
        tokio::task::yield_now().await;
    }
    member.links.send(node(4), &who_is(1));
    assert_eq!(sound.hears().await, (node(2), who_is(1)));
    // It is given up, and dialled again.
    still.pass();
    let _ = stuck.meets().await;
}

#[tokio::test(start_paused = true)]
async fn frames_for_which_there_is_no_way_are_dropped_and_counted() {
    let _still = Still::new();
    let mut member = Member::new(2).await;
    let mut other = Member::new(3).await;
    member.links.send(node(3), &who_is(1));
    assert_eq!(member.links.status().dropped, 1);
    member.links.set_nodes(&[(node(3), other.address.clone())]);
    linked(&member, 1).await;
    // The other side would hang up on it.
    let parts = Box::new([Some(vec![0; PEER_FRAME_MAX as usize].into())]);
    let key = KeyId::from_bits(1, 1);
    let names =
        PeerFrame::Told(1, Told::Names(vec![KeyName { key, limit: FleetLimitId(1), parts }]));
    member.links.send(node(3), &names);
    assert_eq!(member.links.status().dropped, 2);
    member.links.send(node(3), &who_is(2));
    assert_eq!(other.hears().await, (node(2), who_is(2)));
    assert_eq!((member.links.status().frames, member.links.status().dropped), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_address_changes_is_reached_at_the_new_one() {
    let _still = Still::new();
    let mut member = Member::new(2).await;
    let (old, old_address) = Other::new(3).await;
    let (new, new_address) = Other::new(3).await;
    member.links.set_nodes(&[(node(3), old_address)]);
    let (before, _) = old.meets().await;
    member.links.set_nodes(&[(node(3), new_address)]);
    let (mut after, _) = new.meets().await;
    let mut reader = FrameReader::new(&mut after, PEER_FRAME_MAX);
    let (kind, body) = reader.next().await.expect("no error").expect("a frame");
    assert_eq!(PeerFrame::decode(kind, &body), Ok(PeerFrame::Ping(1)));
    member.links.send(node(3), &who_is(1));
    let (kind, body) = reader.next().await.expect("no error").expect("a frame");
    assert_eq!(PeerFrame::decode(kind, &body), Ok(who_is(1)));
    drop(before);
}

/// The process that had this address before belonged to another fleet, whose members still dial it;
/// this one has not joined yet and can't tell.
#[tokio::test(start_paused = true)]
async fn whoever_came_before_the_fleet_was_known_is_heard_only_if_it_belongs_to_it() {
    let _still = Still::new();
    let here = "127.0.0.1:0".parse().expect("an address");
    let door = Door::bind(here, secret()).await.expect("a port");
    let (address, routes) = (door.address(), door.routes());
    let arrivals = routes.take(Purpose::Peer);
    tokio::spawn(door.run());
    let mut streams = Vec::new();
    for fleet in [FLEET + 1, 0, FLEET] {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let hello = Hello { fleet, ..hello(3) };
        wire::introduce(&mut stream, &secret(), &hello).await.expect("introduced");
        stream.write_all(&framed(&who_is(fleet))).await.expect("sent");
        streams.push(stream);
    }
    routes.set_member(FLEET, node(2));
    let (links, mut inbox) = Links::new(hello(2), secret());
    links.listen(arrivals);
    assert_eq!(inbox.recv().await.expect("a frame"), (node(3), who_is(FLEET)));
    let _ours = streams.pop();
    for stream in streams {
        is_hung_up_on(stream).await;
    }
    assert!(inbox.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn strangers_that_say_nothing_give_way_to_members() {
    let _still = Still::new();
    let mut member = Member::new(2).await;
    let mut strangers = Vec::new();
    for _ in 0..80 {
        strangers.push(TcpStream::connect(&member.address).await.expect("connected"));
    }
    let mut stream = member.dialled_by(3).await;
    stream.write_all(&framed(&who_is(1))).await.expect("sent");
    assert_eq!(member.hears().await, (node(3), who_is(1)));
    is_hung_up_on(strangers.remove(0)).await;
    assert!(member.routes.refused() >= 17, "{}", member.routes.refused());
}

#[tokio::test(start_paused = true)]
async fn a_door_refuses_what_is_meant_for_another_node_or_served_by_nobody() {
    let _still = Still::new();
    let member = Member::new(2).await;
    for (to, purpose) in [(Some(node(3)), Purpose::Peer), (None, Purpose::Coordinator)] {
        let mut stream = TcpStream::connect(&member.address).await.expect("connected");
        let hello = Hello { to, purpose, ..hello(4) };
        let error = wire::introduce(&mut stream, &secret(), &hello).await.expect_err("refused");
        match to {
            Some(_) => {
                assert!(matches!(error, HelloError::Node { node: Some(here) } if here == node(2)));
            }
            None => assert!(matches!(error, HelloError::NotServed)),
        }
    }
    assert_eq!(member.routes.refused(), 2);
}

fn sessions() -> (Replicas, mpsc::Receiver<Heard>) {
    Replicas::new(hello(2), secret())
}

async fn connected(heard: &mut mpsc::Receiver<Heard>) {
    let event = heard.recv().await;
    assert!(matches!(event, Some(Heard::Connected)), "{event:?}");
}

async fn closed(heard: &mut mpsc::Receiver<Heard>, replica: u32) {
    let event = heard.recv().await;
    assert!(matches!(event, Some(Heard::Closed(from, _)) if from == node(replica)), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_replica_that_hangs_is_made_again() {
    let still = Still::new();
    let (mut replicas, mut heard) = sessions();
    let (replica, address) = Other::new(1).await;
    replicas.set(1, &[(node(1), address)]);
    let (_hung, hello) = replica.meets().await;
    assert_eq!((hello.purpose, hello.to), (Purpose::Session, Some(node(1))));
    connected(&mut heard).await;
    assert_eq!(replicas.connected().collect::<Vec<_>>(), [node(1)]);
    still.pass();
    closed(&mut heard, 1).await;
    assert_eq!(replicas.connected().count(), 0);
    assert!(!replicas.ask_one(node(1), &Ask::Leave));
    let (mut again, _) = replica.meets().await;
    connected(&mut heard).await;
    assert!(replicas.ask_one(node(1), &Ask::Leave));
    let mut reader = FrameReader::new(&mut again, 100);
    let (kind, body) = reader.next().await.expect("no error").expect("a frame");
    assert_eq!(Ask::decode(kind, &body), Ok(Ask::Leave));
}

/// A leader counts from when it sees a connection end. A node that ends one itself, because the
/// replicas are others now, must not take its lease for longer than that.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_ended_from_this_side_is_told_as_well() {
    let _still = Still::new();
    let (mut replicas, mut heard) = sessions();
    let (old, old_address) = Other::new(1).await;
    let (new, new_address) = Other::new(1).await;
    replicas.set(1, &[(node(1), old_address)]);
    let (_old, _) = old.meets().await;
    connected(&mut heard).await;
    replicas.set(2, &[(node(1), new_address)]);
    closed(&mut heard, 1).await;
    let (_new, hello) = new.meets().await;
    assert_eq!(hello.start, 1);
    connected(&mut heard).await;
    replicas.set_start(2);
    closed(&mut heard, 1).await;
    let (_newer, hello) = new.meets().await;
    assert_eq!(hello.start, 2);
    connected(&mut heard).await;
    // That there are none any more is not believed.
    replicas.set(9, &[]);
    assert_eq!(replicas.connected().collect::<Vec<_>>(), [node(1)]);
}

/// Both write more than the connection takes before either reads: nobody waits for the other.
#[tokio::test(start_paused = true)]
async fn a_long_question_and_a_long_answer_pass_each_other() {
    let _still = Still::new();
    let (mut replicas, mut heard) = sessions();
    let (replica, address) = Other::new(1).await;
    replicas.set(1, &[(node(1), address)]);
    let (mut stream, _) = replica.meets().await;
    connected(&mut heard).await;
    let body = vec![1; 12 << 20];
    assert!(replicas.ask_one(node(1), &Ask::Other { number: 1, body: body.clone() }));
    let mut bytes = Vec::new();
    put_frame(&mut bytes, |out| Tell::Other { number: 1, body: body.clone() }.encode(out));
    // All of it is written before anything is read.
    stream.write_all(&bytes).await.expect("taken");
    let mut reader = FrameReader::new(&mut stream, wire::SESSION_FRAME_MAX);
    let (kind, asked) = reader.next().await.expect("no error").expect("a frame");
    assert_eq!(Ask::decode(kind, &asked), Ok(Ask::Other { number: 1, body: body.clone() }));
    let told = heard.recv().await;
    assert!(matches!(told, Some(Heard::Tell(_, Tell::Other { body: told, .. })) if told == body));
    // What no replica would take is not sent.
    let body = vec![1; wire::SESSION_FRAME_MAX as usize];
    assert!(!replicas.ask_one(node(1), &Ask::Other { number: 2, body }));
}

#[tokio::test]
async fn who_is_no_member_is_answered_on_the_connection_that_it_made() {
    let (mut member, mut leaver) = (Member::new(1).await, Member::new(2).await);
    leaver.links.set_nodes(&[(node(1), member.address.clone())]);
    let ping = PeerFrame::Inquiry(1, Inquiry::Names(Vec::new()));
    // Said again until the connection stands.
    let heard = loop {
        leaver.links.send(node(1), &ping);
        tokio::select! {
            heard = member.hears() => break heard,
            () = tokio::task::yield_now() => {}
        }
    };
    assert_eq!(heard, (node(2), ping));
    let answer = PeerFrame::Told(1, Told::Names(Vec::new()));
    member.links.send(node(2), &answer);
    assert_eq!(leaver.hears().await, (node(1), answer));
    assert_eq!(member.links.status().dropped, 0);
}

#[tokio::test]
async fn replicas_as_one_that_is_behind_tells_of_them_are_not_believed() {
    let hello =
        Hello { fleet: 1, purpose: Purpose::Session, node: Some(node(9)), start: 1, to: None };
    let (mut replicas, _heard) = Replicas::new(hello, PeerSecret::default());
    let all: Vec<(NodeId, String)> =
        (1..=3).map(|number| (node(number), format!("127.0.0.1:{number}"))).collect();
    replicas.set(7, &all);
    // It has just become one, and knows of the first alone.
    replicas.set(3, &all[..1]);
    assert_eq!(replicas.all().count(), 3);
    replicas.set(8, &all[1..]);
    assert_eq!(replicas.all().map(|(node, _)| node.get()).collect::<Vec<_>>(), [2, 3]);
}
