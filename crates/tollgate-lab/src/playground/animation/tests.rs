use std::path::Path;

use super::super::stories;
use super::*;

#[test]
fn animations_are_well_formed_small_and_name_the_finding() {
    for story in stories() {
        let svg = animation(story);
        let request: PlaygroundRequest = serde_json::from_value(story.request.clone()).unwrap();
        let finding = (story.finding)(&play(&request, &mut || true).unwrap());
        assert!(finding.len() <= 78, "{finding}");
        assert!(svg.contains(&format!("<title id=\"title\">{finding}</title>")), "{}", story.name);
        assert!(svg.len() < 150_000, "{}: {} bytes", story.name, svg.len());
        assert!(!svg.contains("<script") && !svg.contains("NaN") && !svg.contains("inf"), "{}", story.name);
        assert!(svg.contains("prefers-reduced-motion") && svg.contains("role=\"img\""), "{}", story.name);
        assert_eq!(svg, animation(story), "{}", story.name);
        well_formed(&svg);
    }
}

/// Every element ends, in the order in which they begin, and every attribute is in quotes.
fn well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(begin) = rest.find('<') {
        assert!(!rest[..begin].contains('>'), "{:.80}", rest);
        let end = begin + rest[begin..].find('>').expect("an element ends");
        let element = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        let name = element.split([' ', '/', '\n']).find(|name| !name.is_empty()).unwrap();
        if element.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            assert_eq!(element.matches('"').count() % 2, 0, "{element:.80}");
            assert!(!element.contains('<'), "{element:.80}");
            if !element.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_images_of_the_documentation_are_those_that_the_code_makes() {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    if !images.is_dir() {
        return tollgate_testkit::skip(format_args!("the documentation is not in {}", images.display()));
    }
    for story in stories() {
        let file = images.join(format!("playground-{}.svg", story.name));
        let is_same = std::fs::read_to_string(&file).is_ok_and(|found| found == animation(story));
        assert!(
            is_same,
            "{}: write it again by `cargo run --example stories -- docs/images`",
            file.display()
        );
    }
}

#[test]
fn the_times_of_an_animation_begin_at_0_end_at_1_and_never_go_back() {
    let svg = animation(&stories()[0]);
    let lists: Vec<&str> =
        svg.split("keyTimes=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(lists.len() > 4);
    for list in lists {
        let times: Vec<f64> = list.split(';').map(|time| time.parse().unwrap()).collect();
        assert!(times.is_sorted() && times[0] == 0.0 && times.last() == Some(&1.0), "{list:.200}");
    }
}
