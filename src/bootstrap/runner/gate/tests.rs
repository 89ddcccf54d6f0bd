//! The tests of the scripts, and of the gate itself.

use std::collections::BTreeSet;

use super::calls::{calls, commands};
use super::members::{self, Name, Names};
use super::plan::Fields;
use super::slips::{show, slips};
use super::sources::{defined, scripts, sources};
use super::world::Source;
use super::{form, shipped};

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
