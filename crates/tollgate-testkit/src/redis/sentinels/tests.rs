use super::*;

#[test]
fn sentinels_choose_another_primary_when_it_is_killed() {
    let all = Sentinels::start();
    assert_eq!((all.urls().len(), all.servers().len()), (3, 3));
    let mut client = all.primary().client();
    client.command(&["SET", "key", "value"]);
    assert_eq!(client.command(&["WAIT", "2", "10000"]).integer(), 2);

    let killed = all.kill_primary();
    let chosen = all.wait_for_failover();
    assert_ne!(chosen.port(), killed.port());
    assert_eq!(all.primary().port(), chosen.port());
    assert_eq!(chosen.command(&["GET", "key"]).text(), "value");
    assert_eq!(chosen.command(&["SET", "key", "other"]).text(), "OK");
}

#[test]
fn sentinels_and_servers_have_passwords_of_their_own() {
    let all = Sentinels::with(SentinelSecrets { servers: Some("data"), sentinels: Some("watch") });
    for server in all.sentinels().iter().chain(all.servers()) {
        let mut stranger = RedisClient::connect(server.address()).unwrap();
        let refused = stranger.command(&["PING"]);
        assert!(refused.error().is_some_and(|error| error.starts_with("NOAUTH")), "{refused:?}");
    }
    let mut sentinel = RedisClient::connect(all.sentinels()[0].address()).unwrap();
    assert_eq!(sentinel.command(&["AUTH", "watch"]).text(), "OK");
    let told = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", all.master_name()]);
    assert_eq!(told.array()[1].integer(), i64::from(all.primary().port()));
    assert_eq!(all.primary().command(&["PING"]).text(), "PONG");
}
