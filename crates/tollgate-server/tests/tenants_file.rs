//! Tenants in a file of their own, and how large a policy file may be.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::json;

use crate::service::{Client, Directory, Service, TOLLGATE, eventually, json_of, tollgate};

const POLICY: &str = "
tenants_file: tenants.csv
tiers: { free: {}, pro: {} }
default_tier: free
tenants: { in-policy: { tier: pro } }
limits:
  - { name: a, key: [tenant], token_bucket: { rate: 1/day, burst: 10 }, tiers: { pro: { burst: 20 } } }
";

fn start(tenants: &str) -> Service {
    let directory = Directory::new();
    directory.write("tenants.csv", tenants);
    Service::start_in(directory, POLICY)
}

/// The burst of each tenant, of which nothing is spent.
fn bursts<const N: usize>(client: &mut Client, tenants: [&str; N]) -> [u64; N] {
    tenants.map(|tenant| client.remaining("a", &[("tenant", tenant)]))
}

fn put(client: &mut Client, tenant: &str, tier: &str) {
    let body = json!({ "tier": tier }).to_string();
    let answer = client.0.send("PUT", &format!("/v1/tenants/{tenant}"), &[], &body);
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn reload(client: &mut Client) {
    let answer = client.post("/v1/reload", &json!({}));
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// What `tollgate check` prints for a policy with a tenants file: its exit code, standard output, standard error.
fn check(tenants: Option<&str>, arguments: &[&str]) -> (Option<i32>, String, String) {
    let directory = Directory::new();
    let policy = directory.write("policy.yaml", POLICY);
    if let Some(tenants) = tenants {
        directory.write("tenants.csv", tenants);
    }
    let output = Command::new(TOLLGATE).arg("check").arg(policy).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn tenants_of_the_file_have_their_tiers_and_numbers() {
    let service = start(
        "\u{feff}# tenant,tier\r\nacme,pro\r\n\r\ninitech,\r\n\"Smith, Jones\" , pro ,a:burst=7\r\n\"say \"\"hi\"\"\",,a:limit=0",
    );
    let mut client = service.connect();
    let tenants = ["acme", "initech", "Smith, Jones", "in-policy", "unknown"];
    assert_eq!(bursts(&mut client, tenants), [20, 10, 7, 20, 10]);
    assert!(!client.passes(&[("tenant", "say \"hi\"")]));
}

#[test]
fn a_changed_tenants_file_is_read_again() {
    let service = start("acme,pro\nglobex,pro\n");
    let mut client = service.connect();
    assert_eq!(bursts(&mut client, ["acme", "globex", "new"]), [20, 20, 10]);
    service.directory.write("tenants.csv", "acme,free\nnew,,a:burst=15\n");
    eventually("the service reads the file again", || {
        bursts(&mut client, ["acme", "globex", "new"]) == [10, 10, 15]
    });
    assert!(service.process.errors().contains("`tenants` has changed"));
}

#[test]
fn a_bad_line_leaves_the_old_tenants_in_force() {
    let service = start("acme,pro\n");
    let mut client = service.connect();
    service.directory.write("tenants.csv", "acme,free\nglobex,prp\n");
    let answer = client.post("/v1/reload", &json!({}));
    assert_eq!(answer.status, 422, "{answer:?}");
    let detail = json_of(&answer)["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("tenants.csv:2:8") && detail.contains("unknown tier `prp`"), "{detail}");
    assert!(detail.contains("did you mean `pro`?"), "{detail}");
    assert_eq!(bursts(&mut client, ["acme", "globex"]), [20, 10]);
    assert!(client.metric("tollgate_config_reloads_total{result=\"failure\"}").unwrap() >= 1.0);
    let log = service.process.errors();
    assert!(
        log.contains("policy not reloaded; the old one stays in force") && log.contains("tenants.csv:2:8"),
        "{log}"
    );
    // A repeated tenant is as bad.
    service.directory.write("tenants.csv", "acme,free\n# x\nacme,free\n");
    let repeated = client.post("/v1/reload", &json!({})).body;
    assert!(repeated.contains("line 1 has this tenant; keep one of the lines"), "{repeated}");
    service.directory.write("tenants.csv", "acme,free\nglobex,pro\n");
    eventually("the service reads the repaired file", || bursts(&mut client, ["acme", "globex"]) == [10, 20]);
}

#[test]
fn a_tenants_file_that_was_bad_when_it_was_named_is_read_when_it_is_repaired() {
    let service = start("acme,pro\n");
    let mut client = service.connect();
    service.directory.write("other.csv", "acme,fre\n");
    service.write_policy(&POLICY.replace("tenants.csv", "other.csv"));
    let answer = client.post("/v1/reload", &json!({}));
    assert!(answer.status == 422 && answer.body.contains("other.csv:1:6"), "{answer:?}");
    assert_eq!(bursts(&mut client, ["acme"]), [20]);
    service.directory.write("other.csv", "acme,free\n");
    eventually("the service reads the repaired file", || bursts(&mut client, ["acme"]) == [10]);
    // The service does not wait for a file that is not named any more.
    std::fs::remove_file(service.directory.path("other.csv")).unwrap();
    service.write_policy(&POLICY.replace("tenants_file: tenants.csv", "").replace("in-policy", "acme"));
    eventually("the service reads the policy file", || bursts(&mut client, ["acme"]) == [20]);
}

#[test]
fn a_tier_that_was_set_wins_until_the_line_of_the_tenant_changes() {
    let service = start("acme,free\nglobex,free\ninitech,free\n");
    let mut client = service.connect();
    for tenant in ["acme", "globex", "initech", "in-policy", "elsewhere"] {
        put(&mut client, tenant, if tenant == "in-policy" { "free" } else { "pro" });
    }
    let tenants = ["acme", "globex", "initech", "in-policy", "elsewhere"];
    assert_eq!(bursts(&mut client, tenants), [20, 20, 20, 10, 20]);
    // A reload that leaves the lines as they were keeps the tiers, also where the file is formatted in another way.
    reload(&mut client);
    service.directory.write("tenants.csv", "# sorted\r\nglobex, free\r\n\"acme\",free\r\ninitech,free\r\n");
    reload(&mut client);
    assert_eq!(bursts(&mut client, tenants), [20, 20, 20, 10, 20]);
    // The line of one tenant changes, that of another is removed, and one appears.
    service.directory.write("tenants.csv", "acme,,a:burst=12\ninitech,free\nelsewhere,free\n");
    reload(&mut client);
    assert_eq!(bursts(&mut client, tenants), [12, 10, 20, 10, 10]);
    // The next call wins again.
    put(&mut client, "elsewhere", "pro");
    reload(&mut client);
    assert_eq!(bursts(&mut client, ["elsewhere"]), [20]);
}

#[test]
fn check_reads_the_tenants_file() {
    let (code, output, errors) = check(Some("acme,pro\nglobex,,a:burst=7\n"), &[]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("1 limit, 2 tiers, 3 tenants"), "{output}");
    assert!(output.contains("tenant globex") && output.contains("burst 7"), "{output}");
    for (tenants, expected) in [
        (Some("acme,pro\nacme,free\n"), "tenants.csv:2:1"),
        (Some("acme,prp\n"), "unknown tier `prp`"),
        (Some("in-policy,pro\n"), "`tenants:` of the policy file has this tenant; keep it in one place"),
        (Some("acme,pro,b:burst=7\n"), "unknown limit `b`"),
        (None, "tenants.csv: No such file or directory"),
    ] {
        let (code, output, errors) = check(tenants, &[]);
        assert_eq!((code, output.as_str()), (Some(1), ""), "{errors}");
        assert!(errors.contains(expected), "{expected}: {errors}");
        // The help is about files that are missing, not about lines that are wrong.
        assert_eq!(errors.contains("pass --skip-files"), tenants.is_none(), "{expected}: {errors}");
        assert_eq!(errors.matches("error: ").count(), 1, "{errors}");
        let (code, output, errors) = check(tenants, &["--skip-files"]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
        assert!(output.contains("warning: ") && output.contains(expected), "{expected}: {output}");
        assert!(output.contains("2 tiers, 1 tenant\n"), "{output}");
    }
}

#[test]
fn serve_refuses_a_bad_tenants_file() {
    let directory = Directory::new();
    let policy = directory.write("tollgate.yaml", POLICY);
    directory.write("tenants.csv", "acme,pro\n\"globex,pro\n");
    let output = Command::new(TOLLGATE)
        .args(["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(policy)
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("tenants.csv:2:1") && errors.contains("a quote that is not closed on its line"),
        "{errors}"
    );
}

#[test]
fn a_hundred_thousand_tenants_are_served_and_changed() {
    let lines = |changed: &str| {
        let mut file = String::new();
        for i in 0..100_000 {
            let _ = match i % 1000 {
                0 => writeln!(file, "t{i},{changed},a:burst={}", i / 10_000 + 1),
                1 => writeln!(file, "\"t,{i}\",free\r"),
                _ => writeln!(file, "t{i},pro"),
            };
        }
        file
    };
    let service = start(&lines("free"));
    let mut client = service.connect();
    assert_eq!(bursts(&mut client, ["t0", "t99000", "t,99001", "t99999", "t100000"]), [1, 10, 10, 20, 10]);
    put(&mut client, "t99999", "free");
    put(&mut client, "t1000", "pro");
    service.directory.write("tenants.csv", &lines("pro").replace("a:burst=10\n", "a:burst=30\n"));
    reload(&mut client);
    assert_eq!(bursts(&mut client, ["t0", "t99000", "t,99001", "t99999", "t100000"]), [1, 30, 10, 10, 10]);
}

#[test]
fn a_policy_file_above_max_policy_bytes_names_the_flag() {
    let directory = Directory::new();
    let mut policy = "listen: { http: '127.0.0.1:0' }\nlimits: []\n".to_owned();
    policy.push_str(&"# a comment that is long enough to fill a file\n".repeat((4 << 20) / 47 + 1));
    let file = directory.write("tollgate.yaml", &policy);
    let file = file.to_str().unwrap();
    let refusal = format!(
        "{file}: the file has {} bytes; at most 4194304 are read: pass a larger --max-policy-bytes",
        policy.len()
    );
    let tests = directory.write("tests.yaml", "tests: []");
    let tests = tests.to_str().unwrap();
    for command in [
        &["serve", "--config", file][..],
        &["check", file],
        &["explain", "--config", file, "tenant=acme"],
        &["test", file, tests],
        &["replay", "--policy", file, tests],
    ] {
        let output = tollgate(command);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {errors}");
        assert!(errors.contains(&refusal), "{command:?}: {errors}");
    }
    let output = tollgate(&["check", file, "--max-policy-bytes", "5MiB"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let service = Service::run(
        Directory::new(),
        Command::new(TOLLGATE).args(["serve", "--max-policy-bytes", "16MiB", "--config", file]),
    );
    assert!(service.connect().passes(&[]));
    for (size, error) in [
        ("0", "at least 1 byte"),
        ("5 miles", "write a size in bytes"),
        ("2GiB", "1073741824 bytes are the most"),
    ] {
        let output = tollgate(&["check", file, "--max-policy-bytes", size]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(error), "{errors}");
    }
}
