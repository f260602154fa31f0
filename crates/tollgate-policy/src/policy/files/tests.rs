use std::fs;

use tollgate_testkit::Directory;

use super::*;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";

/// A policy with every key that names a file.
const EVERY_FILE: &str = "
tls: { cert_file: ./cert.pem, key_file: ./key.pem }
resp_password_file: ./resp.password
admin: { token_file: ./admin.token }
record: { path: ./decisions.log }
tenants_file: ./tenants.csv
store:
  redis:
    url: rediss://127.0.0.1
    password_file: ./redis.password
    sentinel: { master: m, password_file: ./sentinel.password }
    tls: { ca_file: ./ca.pem, cert_file: ./client.pem, key_file: ./client.key }
";

fn read(directory: &Directory, source: &str) -> Policy {
    let file = directory.path().join("policy.yaml");
    let read = Policy::read_text(&file, source, &|_| Some("hidden-place".to_owned()));
    read.unwrap_or_else(|faults| panic!("{faults}")).0
}

/// The keys whose files cannot be used, each with the error.
fn unusable(policy: &Policy) -> Vec<(&'static str, String)> {
    policy.unusable_files().into_iter().map(|file| (file.key, file.error)).collect()
}

#[test]
fn every_missing_file_is_named_by_its_key() {
    let directory = Directory::new();
    let policy = read(&directory, EVERY_FILE);
    let keys: Vec<&str> = policy.unusable_files().iter().map(|file| file.key).collect();
    // A record is created.
    assert_eq!(
        keys,
        [
            "tls.cert_file",
            "tls.key_file",
            "resp_password_file",
            "admin.token_file",
            "tenants_file",
            "store.redis.password_file",
            "store.redis.sentinel.password_file",
            "store.redis.tls.ca_file",
            "store.redis.tls.cert_file",
            "store.redis.tls.key_file",
        ]
    );
    assert!(policy.unusable_files().iter().all(|file| file.to_string().contains("No such file")));
    for name in ["cert.pem", "ca.pem", "client.pem"] {
        directory.write(name, CERTIFICATE);
    }
    for name in ["key.pem", "client.key"] {
        directory.write(name, KEY);
    }
    for name in ["resp.password", "admin.token", "redis.password", "sentinel.password", "tenants.csv"] {
        directory.write(name, "secret\n");
    }
    assert_eq!(policy.unusable_files(), []);
}

/// Every key of the language that ends in `_file` is looked at.
#[test]
fn no_key_for_a_file_is_forgotten() {
    fn count(keys: &[crate::keys::Key]) -> usize {
        use crate::keys::Takes;
        let inner = |takes: &Takes| match takes {
            Takes::Section(keys) => count(keys),
            Takes::Either(kinds) => {
                kinds.iter().map(|kind| if let Takes::Section(keys) = kind { count(keys) } else { 0 }).sum()
            }
            _ => 0,
        };
        keys.iter().map(|key| usize::from(key.name.ends_with("_file")) + inner(&key.takes)).sum()
    }
    let policy = read(&Directory::new(), EVERY_FILE);
    let record = 1;
    assert_eq!(policy.files().len(), count(crate::keys::POLICY) + record);
}

#[test]
fn a_file_that_serve_refuses_is_unusable() {
    let directory = Directory::new();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    directory.write("empty", "");
    directory.write("blank", " \n");
    directory.write("line", "\r\n");
    directory.write("binary", [b'a', 0xff, b'b']);
    directory.write("secret", "s3cret\n");
    directory.write("cert.pem", CERTIFICATE);
    directory.write("key.pem", KEY);
    std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
    let redis = |settings: &str| format!("store: {{ redis: {{ url: 'rediss://127.0.0.1', {settings} }} }}");
    for (source, expected) in [
        ("admin: { token_file: ./secret }".to_owned(), None),
        ("admin: { token_file: ./folder }".to_owned(), Some("directory")),
        ("admin: { token_file: ./empty }".to_owned(), Some("empty")),
        ("admin: { token_file: ./blank }".to_owned(), Some("empty")),
        ("admin: { token_file: ./link }".to_owned(), Some("No such file")),
        ("admin: { token_file: ./secret/x }".to_owned(), Some("Not a directory")),
        ("admin: { token_file: /dev/null }".to_owned(), None), // not a regular file: only `serve` opens it
        ("resp_password_file: ./secret".to_owned(), None),
        ("resp_password_file: ./blank".to_owned(), None),
        ("resp_password_file: ./empty".to_owned(), Some("empty")),
        ("resp_password_file: ./line".to_owned(), Some("empty")),
        ("resp_password_file: ./folder".to_owned(), Some("directory")),
        (redis("password_file: ./empty"), None),
        (redis("password_file: ./binary"), Some("UTF-8")),
        (redis("password_file: ./folder"), Some("directory")),
        (redis("tls: { ca_file: ./cert.pem }"), None),
        (redis("tls: { ca_file: ./key.pem }"), Some("no certificate")),
        ("tls: { cert_file: ./cert.pem, key_file: ./key.pem }".to_owned(), None),
        ("tls: { cert_file: ./secret, key_file: ./key.pem }".to_owned(), Some("no certificate")),
        ("tls: { cert_file: ./cert.pem, key_file: ./cert.pem }".to_owned(), Some("no private key")),
        ("tenants_file: ./secret".to_owned(), None), // its lines are read by `read_tenants_file`
        ("tenants_file: ./folder".to_owned(), Some("directory")),
        ("tenants_file: /dev/null".to_owned(), Some("not a regular file")),
        ("record: { path: ./secret }".to_owned(), None),
        ("record: { path: ./new }".to_owned(), None),
        ("record: { path: ./folder }".to_owned(), Some("directory")),
        ("record: { path: ./nowhere/new }".to_owned(), Some("its directory")),
    ] {
        let found = unusable(&read(&directory, &source));
        match (expected, &found[..]) {
            (None, []) => {}
            (Some(text), [(_, error)]) if error.contains(text) => {}
            _ => panic!("{found:?} of {source}, expected {expected:?}"),
        }
    }
    assert!(!at("new").exists(), "looking creates nothing");
    assert_eq!(fs::read(at("secret")).unwrap(), b"s3cret\n", "looking changes nothing");
}

#[test]
fn a_path_from_the_environment_is_hidden() {
    let policy = read(&Directory::new(), "admin: { token_file: '/${PLACE}/token' }");
    let shown = policy.unusable_files()[0].to_string();
    assert!(shown.starts_with("admin.token_file: /${PLACE}/token: "), "{shown}");
}
