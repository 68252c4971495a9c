//! The libraries as `packaging/stage` installs them: versions, functions, pkg-config, CMake, and programs that were
//! linked with libraries without a version. The wheel: imports, and what a type checker finds in it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{
    SCR, World, exits_with, in_repository, library_directory, needs, needs_module, output, program_source,
};

/// The directories of libraries in a package of Debian.
fn debian() -> String {
    format!("lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// The directory of this build's program and libraries, and of nothing else.
fn artifacts(world: &World) -> PathBuf {
    let artifacts = world.path().join("artifacts");
    fs::create_dir(&artifacts).unwrap();
    symlink(env!("CARGO_BIN_EXE_holdfast"), artifacts.join("holdfast")).unwrap();
    for name in ["scr", "fti", "sion", "holdfast_variables", "holdfast_pairs", "scr_interpose"] {
        for file in [format!("lib{name}.so"), format!("lib{name}.a")] {
            let from = library_directory().join(&file);
            if from.exists() {
                symlink(from, artifacts.join(file)).unwrap();
            }
        }
    }
    artifacts
}

/// Installs this build below the test's directory, and returns the prefix.
fn installed(world: &World, libraries: &str) -> PathBuf {
    let prefix = world.path().join("installed");
    let mut stage = Command::new(in_repository("packaging/stage"));
    stage.arg(artifacts(world)).arg("/").arg(&prefix).arg(libraries);
    printed(&mut stage);
    prefix
}

/// What a command prints that must succeed.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let ran = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ran.status.success(), "{command:?}: {}", output(&ran));
    String::from_utf8(ran.stdout).unwrap()
}

/// Runs a program as a job, which restarts from a checkpoint of an earlier one.
#[track_caller]
fn restarts(world: &World, program: &Path) {
    for (steps, restored) in [("2", "0 0 0 0"), ("3", "2 6 1 5")] {
        let command = [program.to_str().unwrap(), steps, &world.results(), "1"];
        let ran = world.run_on(4, "ranks: 6,", &command, "redundancy: [{scheme: xor, set_size: 3}]", "", "");
        exits_with(&ran, 0);
        assert_eq!(world.result(5), restored, "step {steps}");
    }
}

/// The libraries and their lists of functions.
fn lists() -> Vec<(String, BTreeSet<String>)> {
    let of_file = |path: PathBuf| {
        let library = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (library, fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect())
    };
    let lists = fs::read_dir(in_repository("packaging/abi")).unwrap().map(|entry| entry.unwrap().path());
    lists.map(of_file).collect()
}

#[test]
fn each_library_has_its_version_and_the_functions_of_its_list(world: &World) {
    needs("nm");
    needs("readelf");
    let prefix = installed(world, "lib");
    let lists = lists();
    assert_eq!(lists.len(), 5);
    for (library, listed) in lists {
        let file = prefix.join("lib").join(&library);
        let dynamic = printed(Command::new("readelf").arg("-d").arg(&file));
        assert!(dynamic.contains(&format!("soname: [{library}]")), "{dynamic}");
        let symbols = printed(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&file));
        let suffix = format!("@@{library}");
        let names = symbols.lines().filter_map(|line| line.rsplit(' ').next()).filter(|name| *name != library);
        let exported: BTreeSet<String> = names
            .map(|name| name.strip_suffix(&suffix).unwrap_or_else(|| panic!("{name} has no version")).to_owned())
            .collect();
        let lacking: Vec<_> = listed.difference(&exported).collect();
        assert!(lacking.is_empty(), "{library} lacks {lacking:?}: programs need a version with another number");
        let new: Vec<_> = exported.difference(&listed).collect();
        assert!(new.is_empty(), "add to packaging/abi/{library}.symbols: {new:?}");
    }
}

#[test]
fn a_program_that_was_linked_with_a_library_without_a_version_runs(world: &World) {
    let prefix = installed(world, "lib");
    // As the library was before: the same functions, without versions.
    let (_, functions) = lists().into_iter().find(|(library, _)| library.starts_with("libscr.so")).unwrap();
    let source: String = functions.iter().map(|name| format!("int {name}(void) {{ return 1; }}\n")).collect();
    let earlier = world.path().join("earlier");
    fs::create_dir(&earlier).unwrap();
    fs::write(earlier.join("libscr.c"), source).unwrap();
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-Wl,-soname,libscr.so", "-o", "libscr.so", "libscr.c"]).current_dir(&earlier);
    printed(&mut build);
    let program = world.path().join("any_ranks");
    let mut link = Command::new("cc");
    link.arg(in_repository("tests/libscr/programs/any_ranks.c")).arg("-o").arg(&program);
    link.arg("-I").arg(SCR.include("scr.h").parent().unwrap()).arg("-L").arg(&earlier).arg("-lscr");
    link.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    printed(&mut link);
    fs::remove_dir_all(earlier).unwrap();
    let needed = printed(Command::new("ldd").arg(&program));
    assert!(needed.contains(&format!("libscr.so => {}", prefix.join("lib/libscr.so").display())), "{needed}");
    restarts(world, &program);
}

#[test]
fn pkg_config_names_what_a_program_is_compiled_with(world: &World) {
    needs("pkg-config");
    let prefix = installed(world, &debian());
    let libraries = prefix.join(debian());
    let flags = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(arguments).env("PKG_CONFIG_PATH", libraries.join("pkgconfig"));
        let flags = printed(&mut command);
        flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let program = world.path().join("any_ranks");
    let mut compile = Command::new("cc");
    compile.arg(in_repository("tests/libscr/programs/any_ranks.c")).arg("-o").arg(&program);
    compile.args(flags(&["--cflags", "--libs", "holdfast-scr"]));
    compile.arg(format!("-Wl,-rpath,{}", libraries.display()));
    printed(&mut compile);
    let needed = printed(Command::new("ldd").arg(&program));
    assert!(needed.contains(&format!("libscr.so.100 => {}/", libraries.display())), "{needed}");
    restarts(world, &program);
    for (module, header) in [
        ("holdfast-scr", "scr.h"),
        ("holdfast-fti", "fti.h"),
        ("holdfast-sion", "sion.h"),
        ("holdfast-variables", "holdfast.h"),
        ("holdfast-pairs", "holdfast_pairs.h"),
    ] {
        assert_eq!(flags(&["--modversion", module]), [env!("CARGO_PKG_VERSION")]);
        let source = world.path().join("header.c");
        fs::write(&source, format!("#include <{header}>\nint main(void) {{ return 0; }}\n")).unwrap();
        let mut compile = Command::new("cc");
        compile.arg(&source).arg("-o").arg(world.path().join("header"));
        printed(compile.args(stub_of_mpi()).args(flags(&["--cflags", "--libs", module])));
    }
}

/// FTI's header includes that of MPI.
fn stub_of_mpi() -> Vec<String> {
    vec![format!("-I{}", in_repository("tests/libscr/programs/mpi_stub").display())]
}

#[test]
fn cmake_finds_the_libraries_wherever_they_are_installed() {
    needs("cmake");
    needs("make");
    for libraries in ["lib".to_owned(), debian()] {
        let world = World::new();
        let prefix = installed(&world, &libraries);
        let project = world.path().join("project");
        fs::create_dir(&project).unwrap();
        fs::copy(in_repository("tests/libscr/programs/any_ranks.c"), project.join("program.c")).unwrap();
        let text = "cmake_minimum_required(VERSION 3.16)\nproject(example C)\nfind_package(Holdfast 0.1 REQUIRED)\n\
                    add_executable(program program.c)\ntarget_link_libraries(program Holdfast::scr)\n\
                    foreach(other fti sion variables pairs)\n  if(NOT TARGET Holdfast::${other})\n    \
                    message(FATAL_ERROR \"no Holdfast::${other}\")\n  endif()\nendforeach()\n";
        fs::write(project.join("CMakeLists.txt"), text).unwrap();
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
        printed(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
        printed(Command::new("cmake").arg("--build").arg(project.join("build")));
        restarts(&world, &project.join("build/program"));

        fs::write(project.join("CMakeLists.txt"), text.replace("Holdfast 0.1", "Holdfast 0.9")).unwrap();
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&project).arg("-B").arg(project.join("other"));
        let refused = configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).output().unwrap();
        assert!(!refused.status.success() && output(&refused).contains("0.9"), "{}", output(&refused));
    }
}

#[test]
fn the_installed_program_completes_commands_and_has_manual_pages(world: &World) {
    let prefix = installed(world, "lib");
    for file in [
        "share/man/man1/holdfast-run.1",
        "share/bash-completion/completions/holdfast",
        "share/zsh/site-functions/_holdfast",
        "share/fish/vendor_completions.d/holdfast.fish",
        "share/doc/holdfast/LICENSE",
        "share/holdfast/configs/quickstart.yaml",
        "share/holdfast/python/holdfast/_buffers.pyi",
        "share/holdfast/python/scr-stubs/__init__.pyi",
    ] {
        assert!(fs::metadata(prefix.join(file)).is_ok_and(|found| found.len() > 100), "{file}");
    }
    let module = prefix.join("share/holdfast/modules/holdfast").join(env!("CARGO_PKG_VERSION"));
    let text = fs::read_to_string(module).unwrap();
    assert!(text.contains(&format!("set root {}\n", prefix.display())) && !text.contains('@'), "{text}");
    assert!(prefix.join("share/holdfast/python/holdfast/py.typed").exists());
    // Python finds the libraries of the prefix.
    needs("python3");
    let mut python = Command::new("python3");
    python.args(["-c", "import scr, holdfast.variables, holdfast.pairs; print('imported')"]);
    python.env("PYTHONPATH", prefix.join("share/holdfast/python")).env("LD_LIBRARY_PATH", prefix.join("lib"));
    assert_eq!(printed(&mut python), "imported\n");
}

#[test]
fn artifacts_that_are_missing_are_named_before_anything_is_installed(world: &World) {
    let artifacts = world.path().join("nothing");
    fs::create_dir(&artifacts).unwrap();
    let mut stage = Command::new(in_repository("packaging/stage"));
    let refused = stage.arg(&artifacts).arg(world.path().join("root")).output().unwrap();
    assert_eq!(refused.status.code(), Some(66));
    assert!(
        output(&refused).contains("lacks holdfast libscr_interpose.so libscr.so libscr.a "),
        "{}",
        output(&refused)
    );
    assert!(!world.path().join("root/usr").exists());
}

/// Makes the wheel of these files.
fn wheel(world: &World, artifacts: &Path) -> PathBuf {
    let mut make = Command::new(in_repository("packaging/wheel"));
    PathBuf::from(printed(make.arg(artifacts).arg(world.path())).trim())
}

/// The directory with the content of a wheel.
fn unpacked(world: &World, wheel: &Path) -> PathBuf {
    let site = world.path().join("site");
    let mut unpack = Command::new("python3");
    printed(unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&site));
    site
}

/// The wheel contains the libraries, needs no environment variable, and names what is missing without an agent.
#[test]
fn the_wheel_is_imported_without_an_installation_and_without_an_agent(world: &World) {
    needs("python3");
    needs("objdump");
    let artifacts = artifacts(world);
    let made = wheel(world, &artifacts);
    let name = made.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.contains("-py3-none-manylinux_2_") && name.contains(env!("CARGO_PKG_VERSION")), "{name}");
    let first = fs::read(&made).unwrap();
    assert!(fs::read(wheel(world, &artifacts)).unwrap() == first, "two wheels of the same files differ");

    let site = unpacked(world, &made);
    let python = |program: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", program]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        python.env("PYTHONPATH", &site).current_dir(world.path()).output().unwrap()
    };
    let imported = python("import scr, holdfast.variables, holdfast.pairs; print(scr.__name__)");
    assert_eq!(exits_with(&imported, 0), "scr\n");
    for call in ["scr.init()", "holdfast.variables.init()", "holdfast.pairs.ft_init_wait()"] {
        let alone = python(&format!("import scr, holdfast.variables, holdfast.pairs; {call}"));
        let text = exits_with(&alone, 1);
        assert!(text.contains("holdfast run"), "{call}: {text}");
    }
    // Each file is in the record, with its checksum.
    let checked = python(
        "import base64, csv, glob, hashlib\n\
         record = glob.glob('site/*.dist-info/RECORD')[0]\n\
         rows = list(csv.reader(open(record)))\n\
         for path, digest, size in rows:\n\
        \x20   content = open('site/' + path, 'rb').read()\n\
        \x20   want = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()\n\
        \x20   assert not digest or (digest == 'sha256=' + want and int(size) == len(content)), path\n\
         print(len(rows) >= 8)",
    );
    assert_eq!(exits_with(&checked, 0), "True\n");
    // Without its libraries, a module names the file and the variable that leads to it.
    for (library, variable, program) in [
        ("libscr.so", "HOLDFAST_LIBSCR", "import scr; scr.init()"),
        ("libholdfast_variables.so", "HOLDFAST_LIBVARIABLES", "import holdfast.variables"),
        ("libholdfast_pairs.so", "HOLDFAST_LIBPAIRS", "import holdfast.pairs"),
    ] {
        fs::remove_file(site.join("holdfast").join(library)).unwrap();
        let text = exits_with(&python(program), 1);
        assert!(text.contains(&format!("{library} cannot be loaded")) && text.contains(variable), "{text}");
    }
}

/// The lines of a program with errors, in the output of mypy.
fn lines_with_errors(printed: &str) -> BTreeSet<usize> {
    let errors = printed.lines().filter(|line| line.contains(": error: "));
    errors.filter_map(|line| line.split(':').nth(1)?.parse().ok()).collect()
}

#[test]
fn a_type_checker_accepts_the_python_modules_and_right_calls_and_reports_wrong_ones(world: &World) {
    needs("python3");
    needs("objdump");
    needs("mypy");
    needs_module("numpy");
    let site = unpacked(world, &wheel(world, &artifacts(world)));
    let mypy = || {
        let mut mypy = Command::new("mypy");
        mypy.args(["--strict", "--config-file=", "--cache-dir"]).arg(world.path().join("cache"));
        mypy
    };
    printed(mypy().args(["scr.py", "holdfast"]).current_dir(&site));
    let check = |program: &str| {
        let mut check = mypy();
        check.arg(program_source(program)).current_dir(world.path()).env("PYTHONPATH", &site).output().unwrap()
    };
    exits_with(&check("typed.py"), 0);
    let text = exits_with(&check("mistyped.py"), 1);
    let source = fs::read_to_string(program_source("mistyped.py")).unwrap();
    let wrong = (1..).zip(source.lines()).filter(|(_, line)| line.ends_with("# wrong"));
    assert_eq!(lines_with_errors(&text), wrong.map(|(number, _)| number).collect(), "{text}");

    // The program with right calls uses all names.
    let typed = fs::read_to_string(program_source("typed.py")).unwrap();
    let is_between = |letter: char| !letter.is_alphanumeric() && !"_.".contains(letter);
    let words: BTreeSet<&str> = typed.split(is_between).collect();
    for (module, name) in [("scr", "scr"), ("holdfast.variables", "variables"), ("holdfast.pairs", "pairs")] {
        let mut list = Command::new("python3");
        list.args(["-c", &format!("import {module} as module; print(*module.__all__)")]).env("PYTHONPATH", &site);
        let names = printed(&mut list);
        assert!(names.split_whitespace().count() > 10, "{module}: {names}");
        let is_unused = |used: &&str| !words.contains(format!("{name}.{used}").as_str());
        let unused: Vec<_> = names.split_whitespace().filter(is_unused).collect();
        assert!(unused.is_empty(), "typed.py does not use {unused:?} of {module}");
    }
}

/// With the syntax of the oldest Python that the wheel names.
#[test]
fn the_python_modules_have_the_syntax_of_the_oldest_supported_python() {
    needs("python3");
    let directory = in_repository("agents/client/python");
    let project = fs::read_to_string(directory.join("pyproject.toml")).unwrap();
    let oldest = project.split("requires-python = \">=3.").nth(1).unwrap().split('"').next().unwrap();
    let parse = "import ast, sys\nfor file in sys.argv[2:]:\n    \
                 ast.parse(open(file).read(), file, feature_version=(3, int(sys.argv[1])))";
    let files =
        ["scr.py", "holdfast/__init__.py", "holdfast/_library.py", "holdfast/pairs.py", "holdfast/variables.py"];
    printed(Command::new("python3").args(["-c", parse, oldest]).args(files).current_dir(directory));
}

#[test]
fn the_recipes_of_spack_and_easybuild_name_the_archive_and_what_it_installs(world: &World) {
    needs("python3");
    let prefix = installed(world, "lib");
    for recipe in ["spack/package.py.in", "easybuild/Holdfast.eb.in"] {
        let text = fs::read_to_string(in_repository("packaging").join(recipe)).unwrap();
        let filled = text.replace("@VERSION@", "1.2.3").replace("@SHA256@", &"0".repeat(64));
        assert!(!filled.contains('@') && filled.contains("'1.2.3'") | filled.contains("\"1.2.3\""), "{filled}");
        let file = world.path().join("recipe.py");
        fs::write(&file, filled).unwrap();
        let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
        printed(Command::new("python3").args(["-c", parse]).arg(file));
    }
    let easybuild = fs::read_to_string(in_repository("packaging/easybuild/Holdfast.eb.in")).unwrap();
    let paths = easybuild.split("'files': [").nth(1).unwrap().split(']').next().unwrap();
    for path in paths.split('\'').skip(1).step_by(2) {
        assert!(prefix.join(path).exists(), "{path}");
    }
}

#[test]
fn the_bill_of_materials_has_what_the_program_contains(_world: &World) {
    needs("python3");
    let mut sbom = Command::new(in_repository("packaging/sbom"));
    let document: serde_json::Value =
        serde_json::from_str(&printed(sbom.current_dir(in_repository("")).env("SOURCE_DATE_EPOCH", "0"))).unwrap();
    assert_eq!((&document["bomFormat"], &document["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(document["metadata"]["component"]["name"], "holdfast");
    let components = document["components"].as_array().unwrap();
    let tokio = components.iter().find(|component| component["name"] == "tokio").unwrap();
    assert!(tokio["purl"].as_str().unwrap().starts_with("pkg:cargo/tokio@1."), "{tokio}");
    assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert!(!components.iter().any(|component| component["name"] == "insta"), "of the tests only");
}
