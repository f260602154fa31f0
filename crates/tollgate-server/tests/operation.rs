//! What operators do to a running server: other policies, signals, admin calls, records.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::service::{
    Client, Directory, Service, TOLLGATE, assert_refused, eventually, json_of, pause, timed,
};
use serde_json::{Value, json};

/// A policy of one limit that tells two versions of it apart.
fn policy(burst: u64) -> String {
    format!("limits: [{{ name: only, key: [], token_bucket: {{ rate: 1/day, burst: {burst} }} }}]\n")
}

fn capacity(client: &mut Client) -> u64 {
    client.check(&[], Some(0))["limits"][0]["limit"].as_u64().unwrap()
}

#[test]
fn a_hangup_reloads() {
    let service = Service::start(&policy(10));
    let mut client = service.connect();
    assert!(client.passes(&[]));
    service.write_policy(&policy(20));
    service.process.signal("HUP");
    eventually("the new policy is in force", || capacity(&mut client) == 20);
    eventually("it is logged", || service.process.errors().contains("\"why\":\"SIGHUP\""));
    assert!(client.remaining("only", &[]) < 20); // what was spent stays spent
}

#[test]
fn a_changed_file_is_noticed() {
    let service = Service::start(&policy(10));
    let mut client = service.connect();
    for burst in [20, 30, 15] {
        service.write_policy(&policy(burst));
        eventually("the new policy is in force", || capacity(&mut client) == burst);
    }
    assert!(service.process.errors().contains("the file has changed"));
}

/// The clients of a proxy that was restarted come back together. Here, the process accepts none of them.
#[test]
fn a_thousand_connections_at_once_are_all_taken() {
    let service = Service::start(&policy(10));
    service.process.signal("STOP");
    let connected: Vec<_> = (0..1000)
        .map(|number| match TcpStream::connect_timeout(&service.address, Duration::from_millis(900)) {
            Ok(stream) => stream,
            Err(error) => panic!("connection {number}: {error}"),
        })
        .collect();
    service.process.signal("CONT");
    drop(connected);
}

/// As Kubernetes mounts a config map: the file is a link into a directory that is itself a link, and that one is swapped.
#[test]
fn a_swapped_link_is_noticed() {
    let directory = Directory::new();
    let version = |name: &str, burst: u64| {
        fs::create_dir(directory.path(name)).unwrap();
        let text = format!("listen: {{ http: '127.0.0.1:0' }}\n{}", policy(burst));
        fs::write(directory.path(name).join("tollgate.yaml"), text).unwrap();
        symlink(name, directory.path("..new")).unwrap();
        fs::rename(directory.path("..new"), directory.path("..data")).unwrap();
    };
    version("..2026_01", 10);
    symlink("..data/tollgate.yaml", directory.path("tollgate.yaml")).unwrap();
    let file = directory.path("tollgate.yaml");
    let service =
        Service::run(Directory::new(), Command::new(TOLLGATE).args(["serve", "--config"]).arg(file));
    let mut client = service.connect();
    assert_eq!(capacity(&mut client), 10);
    for (name, burst) in [("..2026_02", 20), ("..2026_03", 30)] {
        version(name, burst);
        eventually("the new policy is in force", || capacity(&mut client) == burst);
    }
}

#[test]
fn a_broken_file_keeps_the_old_policy_and_is_logged() {
    let service = Service::start(&policy(10));
    let mut client = service.connect();
    let failures = "tollgate_config_reloads_total{result=\"failure\"}";
    for (i, broken) in ["limits: [{ name: only }]\n", "limitz: []\n", "limits: 7\n"].into_iter().enumerate() {
        service.write_policy(broken);
        eventually("it is counted", || client.metric(failures) == Some((i + 1) as f64));
        assert_eq!(capacity(&mut client), 10);
    }
    let log = service.process.errors();
    assert!(
        log.contains("policy not reloaded") && log.contains("limitz") && log.contains("tollgate.yaml:2:1"),
        "{log}"
    );
    // A file that is gone for a moment is no other policy.
    fs::remove_file(service.directory.path("tollgate.yaml")).unwrap();
    assert_refused(&client.post("/v1/reload", &json!({})), "no file");
    assert_eq!(capacity(&mut client), 10);
    service.write_policy(&policy(20));
    eventually("the new policy is in force", || capacity(&mut client) == 20);
}

#[test]
fn a_request_that_is_held_gets_its_answer_when_the_server_stops() {
    let mut service =
        Service::start("limits: [{ name: even, key: [], leaky_bucket: { rate: 1/s, queue: 2 } }]");
    let mut client = service.connect();
    assert_eq!(client.get("/v1/forward-auth").status, 204);
    assert_eq!(client.get("/readyz").status, 200);
    let mut held = service.connect();
    let held = thread::spawn(move || held.get("/v1/forward-auth").status);
    eventually("it is held", || client.metric("tollgate_wait_seconds_count") == Some(1.0));
    service.process.signal("TERM");
    eventually("nobody is sent here any more", || match TcpStream::connect(service.address) {
        Err(_) => true,
        Ok(_) => client.0.try_send("GET", "/readyz", &[], b"").is_ok_and(|answer| answer.status == 503),
    });
    let (took, status) = timed(|| service.process.wait());
    assert_eq!(held.join().unwrap(), 204);
    assert_eq!(status.code(), Some(0), "{}", service.process.errors());
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn idle_connections_do_not_keep_the_server_from_stopping() {
    for signal in ["TERM", "INT"] {
        let mut service = Service::start(&policy(10));
        let mut clients: Vec<Client> = (0..20).map(|_| service.connect()).collect();
        assert!(clients.iter_mut().all(|client| client.get("/livez").status == 200));
        service.process.signal(signal);
        let (took, status) = timed(|| service.process.wait());
        assert_eq!(status.code(), Some(0), "{}", service.process.errors());
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// Every call that changes or looks at what is not everybody's.
const ADMIN: [(&str, &str, &str); 5] = [
    ("GET", "/v1/keys?limit=only", ""),
    ("DELETE", "/v1/keys?limit=only", ""),
    ("PUT", "/v1/tenants/acme", r#"{"tier": "pro"}"#),
    ("PUT", "/v1/pressure", r#"{"load": 0.7}"#),
    ("POST", "/v1/reload", ""),
];

fn admin_policy() -> String {
    format!("tiers: {{ pro: {{}} }}\nadaptive_rates: {{ high: 20ms, low: 10ms, floor: 0.1 }}\n{}", policy(10))
}

#[test]
fn admin_calls_need_the_token_where_there_is_one() {
    let directory = Directory::new();
    directory.write("admin.token", "s3cret\n");
    let service =
        Service::start_in(directory, &format!("admin: {{ token_file: ./admin.token }}\n{}", admin_policy()));
    let mut client = service.connect();
    for (method, target, body) in ADMIN {
        for wrong in [&[][..], &[("authorization", "Bearer s3cre")], &[("authorization", "Basic s3cret")]] {
            let answer = client.0.send(method, target, wrong, body);
            assert_refused(&answer, (target, wrong));
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{target}");
        }
        let right = ("authorization", "Bearer s3cret");
        assert_eq!(client.0.send(method, target, &[right], body).status, 200, "{target}");
        // A token does not make a page one of ours. What it could only read, its browser keeps from it.
        let page = client.0.send(method, target, &[right, ("origin", "https://dashboard.example")], body);
        assert_eq!(page.status, if method == "GET" { 200 } else { 403 }, "{method} {target}");
    }
    assert!(client.passes(&[])); // what decides needs none
    // Another token takes effect with a reload.
    service.directory.write("admin.token", "other");
    let send = |client: &mut Client, token: &str| {
        client.0.send("POST", "/v1/reload", &[("authorization", token)], "").status
    };
    assert_eq!([send(&mut client, "Bearer s3cret"), send(&mut client, "Bearer s3cret")], [200, 401]);
    assert_eq!(send(&mut client, "Bearer other"), 200);
}

#[test]
fn without_a_token_this_machine_may_and_no_page_of_another_site() {
    let service = Service::start(&admin_policy());
    let mut client = service.connect();
    for (method, target, body) in ADMIN {
        let own = format!("http://{}", service.address);
        for (headers, status) in [
            (&[][..], 200),
            (&[("origin", own.as_str())], 200), // the page is our own
            (&[("origin", "https://evil.example")], 403),
            (&[("origin", "null")], 403),
        ] {
            let answer = client.0.send(method, target, headers, body);
            assert_eq!(answer.status, status, "{target} {headers:?}: {answer:?}");
        }
    }
}

#[test]
fn every_decision_is_recorded_until_there_is_no_more_room() {
    let policy = "record: { path: ./decisions.log, max_bytes: 2000 }
limits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 1/day, burst: 4 } }]";
    let service = Service::start(policy);
    let mut client = service.connect();
    let file = service.directory.path("decisions.log");
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for cost in [3, 3, 1] {
        client.check(&[("tenant", "acme"), ("secret", "of no interest")], Some(cost));
    }
    eventually("it is written", || lines().len() == 3);
    for (line, (cost, allowed)) in lines().iter().zip([(3, true), (3, false), (1, true)]) {
        let expected = (&json!({ "tenant": "acme" }), &json!(cost), &json!(allowed));
        assert_eq!((&line["attributes"], &line["cost"], &line["allowed"]), expected, "{line}");
        assert_eq!(line["denied_by"], if allowed { json!([]) } else { json!(["per-tenant"]) });
        let (seconds, fraction) = line["time"].as_str().unwrap().split_once('.').unwrap();
        assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000 && fraction.len() == 9, "{line}");
    }
    let times: Vec<Value> = lines().iter().map(|line| line["time"].clone()).collect();
    assert!(times.is_sorted_by_key(Value::to_string), "{times:?}");
    for _ in 0..100 {
        client.check(&[("tenant", "globex")], None);
    }
    eventually("it ends", || service.process.errors().contains("recording ends"));
    eventually("it is written", || lines().len() > 10);
    assert!(fs::metadata(&file).unwrap().len() <= 2000);
    assert!(client.passes(&[("tenant", "another")]));
    assert_eq!(client.metric("tollgate_record_active"), Some(0.0));
    assert!(client.metric("tollgate_record_lost_total").is_some_and(|lost| lost >= 1.0));
    assert_eq!(service.process.errors().matches("recording ends").count(), 1);
}

#[test]
fn only_the_user_of_the_service_can_read_a_record() {
    use std::os::unix::fs::PermissionsExt as _;
    let service = Service::start("record: { path: ./decisions.log }\nlimits: []");
    let mode = fs::metadata(service.directory.path("decisions.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_full_record_goes_on_in_another_file_and_is_replayed_from_all() {
    let policy = "record: { path: ./decisions.log, max_bytes: 2000, max_files: 3 }
limits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 1/day, burst: 4 } }]";
    let service = Service::start(policy);
    let mut client = service.connect();
    let names = ["decisions.log.2", "decisions.log.1", "decisions.log"];
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(service.directory.path(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let tenants = || -> Vec<Value> {
        names.map(lines).concat().iter().map(|line| line["attributes"]["tenant"].clone()).collect()
    };
    for number in 0..35 {
        client.check(&[("tenant", &format!("tenant-{number:03}"))], None);
    }
    let expected = |numbers: std::ops::Range<u32>| numbers.map(|number| json!(format!("tenant-{number:03}")));
    eventually("all are written, in order", || tenants() == expected(0..35).collect::<Vec<Value>>());
    let logs = names.map(|name| service.directory.path(name).display().to_string());
    let policy = service.directory.path("tollgate.yaml").display().to_string();
    let [oldest, older, newest] = &logs;
    let output = crate::service::tollgate(&["replay", oldest, older, newest, "--policy", &policy, "--json"]);
    let replayed: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(replayed["recorded"]["compared"], 35, "{replayed}");
    assert_eq!(replayed["recorded"]["differ"], 0, "{replayed}");
    for number in 35..200 {
        client.check(&[("tenant", &format!("tenant-{number:03}"))], None);
    }
    eventually("the newest are there", || tenants().last() == Some(&json!("tenant-199")));
    let kept = tenants();
    assert_eq!(kept, expected(200 - kept.len() as u32..200).collect::<Vec<Value>>());
    assert!(!service.directory.path("decisions.log.3").exists());
    for name in names {
        assert!(fs::metadata(service.directory.path(name)).unwrap().len() <= 2000, "{name}");
    }
    assert_eq!(client.metric("tollgate_record_active"), Some(1.0));
    assert_eq!(client.metric("tollgate_record_lost_total"), Some(0.0));
}

/// Whoever truncates the file and then writes it is not done in between.
#[test]
fn a_file_that_is_being_written_changes_nothing() {
    let policy = "limits: [{ name: a, key: [], token_bucket: { rate: 1/day, burst: 2 } }]";
    let service = Service::start(policy);
    let mut client = service.connect();
    assert_eq!((client.passes(&[]), client.passes(&[]), client.passes(&[])), (true, true, false));
    fs::write(service.directory.path("tollgate.yaml"), "").unwrap();
    let answer = client.post("/v1/reload", &json!({}));
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.body.contains("write `limits: []`"), "{answer:?}");
    pause(Duration::from_millis(1300)); // long enough for it to be seen
    assert!(!client.passes(&[]));
    service.write_policy(policy);
    pause(Duration::from_millis(1300));
    assert!(!client.passes(&[]));
}

/// What never comes is not waited for.
#[test]
fn a_policy_that_is_no_file_stops_nothing() {
    let mut service = Service::start("limits: []");
    let path = service.directory.path("tollgate.yaml");
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    eventually("it was looked at", || service.process.errors().contains("not a regular file"));
    service.process.signal("TERM");
    assert_eq!(service.process.wait().code(), Some(0));
}

#[test]
fn a_policy_that_is_refused_changes_no_token() {
    let directory = Directory::new();
    directory.write("old.token", "old");
    directory.write("new.token", "new");
    let service = Service::start_in(directory, "admin: { token_file: ./old.token }\nlimits: []");
    let mut client = service.connect();
    service.write_policy(
        "admin: { token_file: ./new.token }\nstore: { memory: { persist: { path: ./state } } }\nlimits: []",
    );
    let mut reload = |token: &str| client.0.send("POST", "/v1/reload", &[("authorization", token)], "");
    let refused = reload("Bearer old");
    assert_refused(&refused, "persist");
    let again = reload("Bearer old");
    assert_eq!(again.status, 422, "{}", again.body);
}

#[test]
fn another_store_waits_for_the_next_start() {
    let service = Service::start(&policy(10));
    let mut client = service.connect();
    service.write_policy(&format!("store: {{ redis: {{ url: 'redis://127.0.0.1' }} }}\n{}", policy(20)));
    let reloaded = client.post("/v1/reload", &json!({}));
    assert_eq!((reloaded.status, &json_of(&reloaded)["needs_restart"]), (200, &json!(["store"])));
    assert_eq!((capacity(&mut client), &client.check(&[], None)["source"]), (20, &json!("memory")));
}

/// The thread that writes has to be waited for; without, this fails now and then.
#[test]
fn what_was_decided_before_the_end_is_recorded() {
    for round in 0..12 {
        let limits = "limits: [{ name: a, key: [tenant], token_bucket: { rate: 1/s } }]";
        let mut service = Service::start(&format!("record: {{ path: ./decisions.log }}\n{limits}"));
        let mut client = service.connect();
        let checks = json!(vec![json!({ "attributes": { "tenant": "x".repeat(200) } }); 1000]);
        for _ in 0..40 {
            assert_eq!(client.post("/v1/check", &checks).status, 200);
        }
        assert_eq!(client.metric("tollgate_record_lost_total"), Some(0.0));
        service.process.signal("TERM");
        assert_eq!(service.process.wait().code(), Some(0));
        let lines = fs::read_to_string(service.directory.path("decisions.log")).unwrap();
        assert_eq!((lines.lines().count(), lines.ends_with('\n')), (40_000, true), "round {round}");
    }
}

/// A pipe that nobody reads takes some, and then nothing any more.
#[test]
fn a_disk_that_hangs_does_not_keep_the_server_from_stopping() {
    let directory = Directory::new();
    let pipe = directory.path("decisions.log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _open = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let limits = "limits: [{ name: a, key: [tenant], token_bucket: { rate: 1/s } }]";
    let mut service = Service::start_in(directory, &format!("record: {{ path: ./decisions.log }}\n{limits}"));
    let checks = json!(vec![json!({ "attributes": { "tenant": "x".repeat(200) } }); 1000]);
    assert_eq!(service.connect().post("/v1/check", &checks).status, 200);
    service.process.signal("TERM");
    assert_eq!(service.process.wait().code(), Some(0));
    assert!(
        service.process.errors().contains("the end of the record is lost"),
        "{}",
        service.process.errors()
    );
}
