//! The README's calls, made as they stand there: they answer what stands there, but for the numbers.

use std::process::Command;

use tollgate_testkit::program;

use crate::service::{Service, repository};

/// A text with every number as `N`: of what it tells, times are never the same.
fn without_numbers(text: &str) -> String {
    let mut shape = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' | '.' if shape.ends_with('N') => {}
            '0'..='9' => shape.push('N'),
            c => shape.push(c),
        }
    }
    shape.lines().filter(|line| !line.starts_with("date:")).map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_readmes_calls_answer_what_it_says() {
    if program("curl").is_none() {
        return;
    }
    let service = Service::start(
        &std::fs::read_to_string(repository("crates/tollgate-server/src/built_in.yaml")).unwrap(),
    );
    let readme = std::fs::read_to_string(repository("README.md")).unwrap();
    let mut calls = 0;
    for block in readme.split("```console\n").skip(1).map(|block| block.split("```").next().unwrap()) {
        for call in block.split("$ curl ").skip(1) {
            let (command, expected) = call.split_once('\n').unwrap();
            let command = command.replace("127.0.0.1:8080", &service.address.to_string());
            let output = Command::new("sh").args(["-c", &format!("curl {command}")]).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(without_numbers(said.trim()), without_numbers(expected.trim()), "{command}");
            calls += 1;
        }
    }
    assert_eq!(calls, 4);
}
