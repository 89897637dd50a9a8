use tollgate::*;
#[test]
fn smoke() {
    let (clock, hand) = Clock::manual();
    let spec = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
    let limiter = Limiter::new(vec![Limit::parse(&spec).unwrap()], Options { clock, ..Options::default() }).unwrap();
    let entries = [Entry::new("tenant", "acme")];
    let d = [Descriptor::new(&entries).unwrap()];
    let r = Request::new(&d);
    for i in 0..10 { let d = limiter.check(&r); assert!(d.is_allowed(), "{i}"); assert_eq!(d.remaining(), Some(9 - i)); }
    let d = limiter.check(&r);
    assert_eq!(d.retry_at(), Some(Retry::At(Instant::from_nanos(100_000_000))));
    hand.advance(std::time::Duration::from_nanos(99_999_999));
    assert!(!limiter.check(&r).is_allowed());
    hand.advance(std::time::Duration::from_nanos(1));
    assert!(limiter.check(&r).is_allowed());
    println!("{:?}", std::mem::size_of::<Decision>());
}
