//! Directories of files of envoyproxy/ratelimit.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::service::{Directory, Service, TOLLGATE, eventually, tollgate};

fn limits(domain: &str) -> String {
    format!(
        "domain: {domain}\ndescriptors: [{{ key: user, rate_limit: {{ unit: hour, requests_per_unit: 1 }} }}]\n"
    )
}

#[test]
fn every_file_that_is_not_hidden_is_read() {
    let directory = Directory::new();
    let folder = directory.path("config");
    fs::create_dir_all(folder.join("subdirectory")).unwrap();
    fs::create_dir(folder.join("..data")).unwrap();
    for name in ["a.yaml", "b.yml", "plain", "subdirectory/deep.yaml", "..data/linked", ".swap.yaml"] {
        let domain = name.rsplit('/').next().unwrap().trim_start_matches('.').split('.').next().unwrap();
        fs::write(folder.join(name), limits(domain)).unwrap();
    }
    symlink("..data/linked", folder.join("linked.conf")).unwrap();
    let path = folder.to_str().unwrap();
    let output = tollgate(&["import", "envoy", path]);
    let policy = String::from_utf8(output.stdout).unwrap();
    for domain in ["a", "b", "plain", "linked"] {
        assert!(policy.contains(&format!("domain: \"{domain}\"")), "{domain}: {policy}");
    }
    assert!(!policy.contains("deep") && !policy.contains("swap"), "{policy}");

    let mut command = Command::new(TOLLGATE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--envoy-config", path]);
    let service = Service::run(directory, &mut command);
    let mut client = service.connect();
    assert!(client.get("/v1/limits").body.contains("plain"));
    fs::write(folder.join("more.yml"), limits("more")).unwrap();
    eventually("the new file is read", || client.get("/v1/limits").body.contains("more"));
}

#[test]
fn directory_without_files_of_limits_is_refused() {
    let directory = Directory::new();
    let folder = directory.path("config");
    fs::create_dir_all(folder.join("subdirectory")).unwrap();
    fs::write(folder.join(".hidden.yaml"), limits("hidden")).unwrap();
    let output = tollgate(&["import", "envoy", folder.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("no files of limits in this directory"), "{errors}");
    // A file that has other content is read, too, and the error says so.
    fs::write(folder.join("README.md"), "Ask Bob: before changing").unwrap();
    let output = tollgate(&["import", "envoy", folder.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("is read, unless its name begins with a dot"), "{errors}");
}
