//! The gate for PowerShell: parses every script as PowerShell does, and checks what it calls, uses and sets against lists of known
//! names. The gate does not prove that Windows does what is meant, but it finds a slip of a name or brace.

mod calls;
mod form;
mod members;
mod plan;
mod shipped;
mod variables;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use powershell_reader::Fault;

use self::calls::{calls, commands, strangers};
use self::members::{Name, Names};
use self::plan::Fields;
use self::world::{Source, World, worlds};
use super::SCRIPTS;
use crate::bootstrap::delivery::unattend::{FIRST_BOOT, FIRST_BOOT_NAME};
use crate::bootstrap::delivery::windows_setup::USER_DATA;

const LOADER: &str = include_str!("../loader.ps1");
/// The script that people run on their own Windows: docs/windows-proof.md.
const PROVE: &str = include_str!("../prove.ps1");
/// The script that runs in an installation that becomes an image.
const INSTALL: &str = include_str!("../../../image/install.ps1");
/// The commands of Pester, and those that only the tests beside the scripts use.
const PESTER: [&str; 10] = ["Describe", "Context", "It", "Mock", "Should", "BeforeAll", "BeforeEach", "AfterAll", "AfterEach", "Trace-Command"];

pub(super) fn scripts() -> Vec<(&'static str, &'static str)> {
    SCRIPTS.into_iter().chain([("loader.ps1", LOADER), ("prove.ps1", PROVE), ("install.ps1", INSTALL), (FIRST_BOOT_NAME, FIRST_BOOT)]).collect()
}

fn sources() -> Vec<Source> {
    scripts().into_iter().map(|(name, text)| Source::new(name, text)).collect()
}

/// Returns the names of the functions in the scripts.
pub(super) fn defined() -> BTreeSet<String> {
    let sources = sources();
    let all = World { sources: sources.iter().collect() };
    all.functions().into_keys().collect()
}

/// Finds all slips except those of syntax, which must be valid before.
fn slips(sources: &[Source], names: &Names, fields: &Fields) -> Vec<(String, Fault)> {
    let everywhere = World { sources: sources.iter().collect() };
    let mut found = members::unknown(&everywhere, names, fields);
    found.extend(variables::idle(&everywhere));
    for world in worlds(sources) {
        found.extend(strangers(&world, &everywhere, &[]));
        found.extend(variables::faults(&world));
        found.extend(members::missing_fields(&world, fields));
    }
    let mut signatures: BTreeMap<_, _> = sources.iter().map(|source| (source.name.clone(), world::parameters(&source.tree))).collect();
    if let Some(parameters) = signatures.remove("loader.ps1") {
        signatures.insert(USER_DATA.to_owned(), parameters);
    }
    for source in sources {
        found.extend(calls::started(&source.tree, &signatures).into_iter().map(|fault| (source.name.clone(), fault)));
    }
    found
}

fn show(faults: impl IntoIterator<Item = (String, Fault)>) -> String {
    let lines: BTreeSet<_> = faults.into_iter().map(|(name, fault)| (name, fault.line, fault.what)).collect();
    let lines = lines.into_iter().map(|(name, line, what)| format!("{name}:{line}: {what}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_script_is_windows_powershell() {
    for (name, text) in scripts() {
        let faults = form::faults(text).into_iter().map(|fault| (name.to_owned(), fault));
        assert_eq!(show(faults), "");
        assert!(!text.contains("Invoke-Expression") && !text.contains("-EncodedCommand"), "{name}: no text becomes a script");
    }
    assert_eq!(show(slips(&sources(), &Names::read(), &Fields::new())), "");
}

#[test]
fn the_lists_of_names_have_what_the_scripts_use_and_no_more() {
    let sources = sources();
    let own = defined();
    let called: BTreeSet<String> = sources.iter().flat_map(|source| calls(&source.tree)).map(|call| call.name.to_owned()).collect();
    let listed = commands().into_keys().filter(|command| !shipped::ON_PAGES.contains(&command.as_str()));
    assert_eq!(called.into_iter().filter(|name| !own.contains(name)).collect::<BTreeSet<_>>(), listed.collect(), "commands-5.1.json");

    let used: BTreeSet<Name> = sources.iter().flat_map(|source| members::names(&source.tree)).map(|(name, _)| name).collect();
    let idle: Vec<Name> = Names::read().all().into_iter().filter(|name| !used.contains(name) && !used.contains(&name.as_member())).collect();
    assert_eq!(idle, [], "names-5.1.json: nothing uses these");
}

#[test]
fn every_form_that_windows_refuses_is_found() {
    for bad in [
        "if ($a) { 1",
        "$a = 'abc\n",
        "$a = @'\nabc\n",
        "try { 1 }\n$x",
        "try { 1 } catch { }",
        "$a = $b ?? 1",
        "$a = $b ? 1 : 2",
        "$a?.b",
        "Get-Item a && Get-Item b",
        "Get-Item a || Get-Item b",
        "$a = {{ value }}",
        "using namespace System.Net\n",
        "function A { process { 1 } clean { 2 } }",
        "$a = '\u{e9}'",
        "$a | ForEach-Object -Parallel { 1 }",
        "ForEach-Object -Parallel { 1 }",
        "($a | Sort-Object).Count",
        "if ($a = 1) { 2 }",
        "\"Path.1\"",
        "\"unpacked $Item.id\"",
        "\"unpacked-($found.id)\"",
        "\"$found[0]: ($found[1])\"",
        "\"$found}: $Path\"",
        "\"$(Split-Path Split-Path $PSScriptRoot))\"",
        "$a -match '^(a'",
        "$a -creplace '[a', 'b'",
        "& shutdownexe /r",
        "Test-Path -LiteralPath 'HKLM\\SOFTWARE'",
        "throw (New-Object System.IO.InvalidDataException(\"found $found: correct the one or the other\"))",
    ] {
        assert!(!form::faults(bad).is_empty(), "{bad}");
    }
}

/// A valid script; each of the changes below introduces a slip.
const GOOD: &str = r#"param([string] $Path)
$limit = 5
$State = New-Object PSObject -Property @{ boots = $limit }
function Get-Name([string] $First, $Second = 'b', [switch] $Loud) {
    $options = @{ Path = $First }
    $null = New-Item @options -Force
    if ($Loud) { return "${First}: $Second $($State.boots)" }
    return [System.IO.File]::ReadAllText($First).Trim()
}
function Test-FileItem($Item) {
    $unless = Get-Field $Item 'unless' $null
    return $null -ne $unless -and (Get-Name $Item.path -Second $Item.sha256 -Loud) -eq $limit
}
function Get-Field($Object, [string] $Name, $Default) {
    foreach ($found in @($Object.PSObject.Properties[$Name] | Where-Object { $_.Length })) { return $found }
    return $Default
}
Test-FileItem $Path
"#;

#[test]
fn slips_of_names_are_found() {
    let (names, fields) = (Names::read(), Fields::new());
    let slips = |text: &str| show(slips(&[Source::new("a.ps1", text)], &names, &fields));
    assert_eq!(slips(GOOD), "");
    for (good, slip, said) in [
        ("Get-Name $Item.path", "Get-Nmae $Item.path", "neither in"),
        ("New-Item @options", "gci @options", "neither in"),
        ("{ Path = $First }", "{ Paht = $First }", "New-Item has no -Paht"),
        ("-Force", "-Forec", "New-Item has no -Forec"),
        ("-Force", "Force", "a dash is missing"),
        ("-Force", "-Force limit", "a dollar is missing"),
        ("-Second $Item", "-Secnod $Item", "Get-Name has no -Secnod"),
        ("$Item.path -Second", "-Second", "takes 1 to 1 arguments, and gets 0"),
        ("Get-Name $Item.path", "Get-Name Item.path", "given the word Item.path"),
        ("ReadAllText($First)", "ReadAllText($Frist)", "$Frist is not set before"),
        ("$limit = 5", "$limti = 5", "$limit is not set before"),
        ("-eq $limit", "-eq $limti", "$limti is not set before"),
        ("$unless = Get", "$unles = Get", "$unles is never used"),
        ("return $found", "return 1", "$found is never used"),
        ("\"${First}: $Second", "\"${First}: $First", "$second is never used"),
        ("{ $_.Length }", "{ $__.Length }", "$__ is not set before"),
        ("return $Default", "return $_", "$_ is not set before"),
        ("ReadAllText", "ReadAllTxet", "[System.IO.File]::ReadAllTxet"),
        ("[System.IO.File]", "[System.IO.Flie]", "[System.IO.Flie]::"),
        (".Trim()", ".Tirm()", ".Tirm is not in"),
        ("$State.boots", "$State.boot", "$state has no field boot"),
        ("$Item.sha256", "$Item.digest", "$Item.digest is none of its fields"),
        ("$Item.sha256", "$Item.optional", "is not always there"),
        ("$Item 'unless'", "$Item 'unles'", "unles is none of its fields"),
    ] {
        let text = GOOD.replacen(good, slip, 1);
        assert_ne!(text, GOOD, "{good}");
        let found = slips(&text);
        assert!(found.contains(said), "{slip}: {found:?}");
    }
}
