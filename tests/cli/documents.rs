//! The Markdown pages: links and paths exist, the specs in them are valid, lines fit the width.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use holdfast::launch::registry::registered;
use holdfast::spec::{Environment, JobSpec};

const WIDTH: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files and directories of the repository, relative to its root, without the files of builds and runs.
fn repository() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![String::new()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
            if ["target", ".git", "heat-run"].contains(&name.as_str()) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

fn pages() -> Vec<(String, String)> {
    let paths = repository().into_iter().filter(|path| path.ends_with(".md"));
    let pages: Vec<_> = paths.map(|path| (path.clone(), fs::read_to_string(root().join(&path)).unwrap())).collect();
    assert!(pages.iter().any(|(path, _)| path == "README.md"), "no pages found");
    pages
}

/// The texts between `open` and `close`, within a line.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    let line =
        |line: &'a str| line.split(open).skip(1).filter_map(|rest| rest.split_once(close)).map(|(inside, _)| inside);
    text.lines().flat_map(line).collect()
}

/// The lines of a page outside of fenced blocks.
fn lines_of_text(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let is_text = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    };
    text.lines().filter(is_text).collect()
}

/// The anchors of the headings of a page, as mdBook and the hosts of repositories make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in lines_of_text(text).into_iter().filter_map(|line| line.strip_prefix('#')) {
        let letters = heading.trim_start_matches('#').trim().to_lowercase();
        let letters = letters.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let mut free = std::iter::once(anchor.clone()).chain(repeated).skip_while(|name| anchors.contains(name));
        let name = free.next().unwrap();
        anchors.insert(name);
    }
    anchors
}

/// The targets of the links in a page, without those in code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in lines_of_text(text) {
        // In a line, every second part is a code span.
        let line = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let definition = line.strip_prefix('[').and_then(|line| line.split_once("]: ")).map(|(_, target)| target);
        links.extend(between(&line, "](", ")").into_iter().chain(definition).map(str::to_owned));
    }
    links
}

/// The path in the repository of a link in a page.
fn target(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let pages: BTreeMap<String, String> = pages().into_iter().collect();
    let (mut files, mut headings) = (0, 0);
    // Paths in a page that is a symbolic link count from the directory of the page itself.
    for (page, text) in pages.iter().filter(|(page, _)| !root().join(page).is_symlink()) {
        for link in links(text).iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { target(page, path) };
            assert!(root().join(&target).exists(), "{page} links to {link}");
            files += 1;
            if !anchor.is_empty() {
                let known = pages.get(&target).is_some_and(|text| anchors(text).contains(anchor));
                assert!(known, "{page} links to {link}: there is no such heading");
                headings += 1;
            }
        }
    }
    assert!(files > 200 && headings > 50, "{files} links, {headings} to headings");
}

/// mdBook leaves out pages that are not listed.
#[test]
fn the_book_has_each_page_once() {
    let listed = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed = between(&listed, "](", ")");
    listed.sort_unstable();
    let docs: Vec<String> =
        repository().into_iter().filter_map(|path| Some(path.strip_prefix("docs/")?.into())).collect();
    let pages: Vec<_> = docs.iter().filter(|path| path.ends_with(".md") && *path != "SUMMARY.md").collect();
    assert_eq!(listed, pages);
}

#[test]
fn first_page_names_every_checkpoint_source() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let table = text.split("| `source` |").nth(1).unwrap().split("\n\n").next().unwrap();
    for source in holdfast_agent::sources::REGISTRY {
        let line = table.lines().find(|line| line.starts_with(&format!("| `{}`", source.name)));
        assert!(line.is_some_and(|line| line.contains("](docs/")), "{}", source.name);
    }
}

#[test]
fn paths_in_architecture_page_exist() {
    let repository = repository();
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    // In a line, every second part is a code span.
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let paths: Vec<_> = spans
        .filter(|span| span.contains('/') || span.ends_with(".rs"))
        .filter(|span| !span.contains([' ', '*', '<']))
        .collect();
    assert!(paths.len() > 50, "{paths:?}");
    for path in paths {
        // A path may leave out the folders that the text around it names.
        let end = format!("/{path}");
        assert!(repository.iter().any(|known| known == path || known.ends_with(&end)), "there is no {path}");
    }
}

#[test]
fn tests_named_in_security_page_exist() {
    let repository = repository();
    let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    // In a line, every second part is a code span.
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let tests: Vec<_> = spans.filter_map(|span| span.split_once(".rs::")).collect();
    assert!(tests.len() > 20, "{tests:?}");
    for (file, name) in tests {
        let (path, end) = (format!("{file}.rs"), format!("/{file}.rs"));
        let defined = format!("fn {name}(");
        // Defined by the macro `mutation_test`.
        let by_macro = name == "mutated_input_is_parsed_or_refused";
        let has_test = |source: &String| {
            let source = fs::read_to_string(root().join(source)).unwrap();
            source.contains(&defined) || by_macro && source.contains("mutation_test!(")
        };
        let mut sources = repository.iter().filter(|known| **known == path || known.ends_with(&end));
        assert!(sources.any(has_test), "there is no test {name} in {path}");
    }
}

#[test]
fn lines_fit_the_width() {
    let endings = [".rs", ".c", ".h", ".f90", ".py"];
    let sources = repository().into_iter().filter(|path| endings.iter().any(|ending| path.ends_with(ending)));
    let sources = sources.map(|path| (path.clone(), fs::read_to_string(root().join(&path)).unwrap()));
    for (file, text) in pages().into_iter().map(|(page, text)| (page.to_string(), text)).chain(sources) {
        for (number, line) in (1..).zip(text.lines()) {
            assert!(line.chars().count() <= WIDTH, "{file}:{number} has more than {WIDTH} characters");
        }
    }
}

#[test]
fn job_specs_in_the_pages_are_valid() {
    let mut read = 0;
    for (page, text) in pages() {
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            // Others are parts of a spec.
            if block.starts_with("job:") {
                let result = JobSpec::parse(block, &page, &Environment::empty(registered()));
                assert!(result.is_ok(), "{page}: {}", result.unwrap_err());
                read += 1;
            }
        }
    }
    assert!(read >= 2, "only {read} specs found");
}

/// The glossary itself, and pages that are generated.
const WITHOUT_LINKS: [&str; 3] = ["docs/glossary.md", "docs/events.md", "docs/scr-parameters.md"];

/// Terms of the glossary that a page links where it uses them first: the anchor, and the forms of the word.
const TERMS: [(&str, &[&str]); 11] = [
    ("agent", &["agent", "agents"]),
    ("dataset", &["dataset", "datasets"]),
    ("descriptor", &["descriptor", "descriptors"]),
    ("drain", &["drain", "drains", "drained"]),
    ("flush", &["flush", "flushes", "flushed"]),
    ("generation", &["generation", "generations"]),
    ("prefix-directory", &["prefix directory"]),
    ("rebuild", &["rebuild", "rebuilds", "rebuilt"]),
    ("scheme", &["scheme", "schemes"]),
    ("spare", &["spare", "spares"]),
    ("virtual-node", &["virtual node", "virtual nodes"]),
];

/// The prose of a page: without code, headings and the targets of links.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        let is_target = line.starts_with('[') && line.contains("]: ");
        !(is_code || fence || is_target || line.starts_with('#'))
    });
    // In a line, every second part is a code span.
    let spans = lines.map(|line| line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
    let text = spans.collect::<Vec<_>>().join("\n");
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |prose, part| prose + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// The first use of a word outside of the text of another link: the position of its first letter.
fn first_use(prose: &str, word: &str) -> Option<usize> {
    let text = prose.to_lowercase();
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '-');
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let (before, after) = (&text[..*at], &text[at + word.len()..]);
        let is_link = before.rfind('[') > before.rfind(']') && !before.ends_with('[');
        let is_other = before.ends_with("file ") && word.starts_with("descriptor");
        !is_part(before.chars().next_back()) && !is_part(after.chars().next()) && !is_link && !is_other
    })
}

#[test]
fn terms_are_defined_once_and_linked_where_a_page_uses_them_first() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let headings = glossary.lines().filter_map(|line| line.strip_prefix("### "));
    let anchors: Vec<String> = headings.map(|heading| heading.to_lowercase().replace(' ', "-")).collect();
    assert_eq!(anchors.iter().collect::<BTreeSet<_>>().len(), anchors.len(), "a term is defined twice");
    for (page, text) in pages() {
        let is_for_users = page == "README.md" || page.starts_with("docs/");
        if !is_for_users || WITHOUT_LINKS.contains(&page.as_str()) {
            continue;
        }
        let prose = prose(&text);
        for (anchor, forms) in TERMS {
            let uses = forms.iter().filter_map(|form| first_use(&prose, form));
            let Some(first) = uses.min() else { continue };
            let target = format!("glossary.md#{anchor}");
            let is_linked = prose[..first].ends_with('[') && text.contains(&target);
            let line: String = prose[first..].chars().take(60).collect();
            assert!(is_linked, "{page}: link the first use to {target}: {line}");
        }
        for target in text.split("glossary.md#").skip(1) {
            let anchor: &str = target.split(|c: char| c != '-' && !c.is_alphanumeric()).next().unwrap();
            assert!(anchors.iter().any(|known| known == anchor), "{page}: the glossary has no {anchor}");
        }
    }
}

#[test]
fn page_of_variables_has_the_prototypes_of_the_header() {
    let header = fs::read_to_string(root().join("agents/client/libvariables/include/holdfast.h")).unwrap();
    let page = fs::read_to_string(root().join("docs/variables.md")).unwrap();
    let prototypes: Vec<&str> = header
        .lines()
        .filter(|line| line.contains("holdfast_") && line.ends_with(");") && !line.contains('#'))
        .collect();
    assert!(prototypes.len() > 10, "{prototypes:?}");
    for prototype in prototypes {
        assert!(page.lines().any(|line| line == prototype), "docs/variables.md lacks {prototype}");
    }
}
