use super::{Dialect, Fault, Node, parse};

fn seven(text: &str) -> Result<Node, Fault> {
    parse(text, Dialect::Seven)
}

fn windows(text: &str) -> Result<Node, Fault> {
    parse(text, Dialect::Windows)
}

/// Returns each `text` and the errors that PowerShell 7.6 found in it; a text without errors is valid.
fn verdicts() -> Vec<(String, Vec<String>)> {
    let lines = include_str!("verdicts.jsonl").lines();
    let verdict = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let errors = value["errors"].as_array().unwrap().iter().map(|error| error.as_str().unwrap().to_owned()).collect();
        (value["text"].as_str().unwrap().to_owned(), errors)
    };
    lines.map(verdict).collect()
}

#[test]
fn verdicts_are_those_of_powershell() {
    let verdicts = verdicts();
    let bad = verdicts.iter().filter(|(_, errors)| !errors.is_empty()).count();
    let good = verdicts.len() - bad;
    assert!(bad > 400 && good > 500, "{bad} bad and {good} good ones: that is not the corpus");
    let (mut missed, mut refused) = (0, 0);
    for (text, errors) in &verdicts {
        match (seven(text), errors.as_slice()) {
            (Ok(_), [_, ..]) => {
                missed += 1;
                println!("--- missed {errors:?}\n{text}");
            }
            (Err(fault), []) => {
                refused += 1;
                println!("--- refused: {fault}\n{text}");
            }
            _ => {}
        }
    }
    println!("missed {missed} of {bad} bad ones, refused {refused} of {good} good ones");
    assert!(missed * 200 <= bad && refused * 100 <= good, "missed {missed} of {bad}, refused {refused} of {good}");
}

#[test]
fn an_error_is_told_with_its_line() {
    let text = "$digest = 1\n# why\nthrow \"expected $digest, found $found: correct the one or the other\"\n";
    let fault = windows(text).unwrap_err();
    assert_eq!(fault.line, 3);
    assert!(fault.what.contains("$found:"), "{fault}");
    for (text, line) in
        [("1\nif (1) {\n2\n", 2), ("@'\n'@\n$a = $(\n1\n", 3), ("$a = \"x\n$(\n)\n$( 1 + )\"", 4), ("Get-Item a\r\nGet-Item b)\r\n", 2)]
    {
        assert_eq!(windows(text).unwrap_err().line, line, "{text}");
    }
}

/// Tests texts that every PowerShell accepts, however odd they look.
#[test]
fn good_texts_are_taken() {
    let texts = [
        "",
        "# only a comment",
        "\"$env:Path ${found}: $($a.b): $a`: $script:b $a::b\"",
        "\"$($a['b']) $(\"inner $b\") $(if ($a) { '()' } # (\n))\"",
        "\"two \"\" quotes and `\" one, `$a, $, 5$\"",
        "'it''s'",
        "@'\n it's \"$(\" '@\n'@",
        "@\"\n\"quoted\" $a $(1)\n\"@.Trim()",
        "$a = 1; $b, $c = 2, 3; ($d) = 4; [int] $e = 5; $f.g = 6; $h[0] += 7; $i[0].j++; --$k",
        "$a.b() = 1",
        "$null = & $a @b -c:$d -e f, g",
        "Get-Item -Path a, b -Force > $null 2>&1",
        "Get-Item a 3>b 4>>c *>d",
        "a | b |\n  c |\n\n# why\nd",
        ". \"$a\\b.ps1\"; & 'c d' e; & { $args } 1",
        "else { 1 }",
        "unless $a { b }",
        "catch",
        "function global:a-b.c { }\nfilter x { $_ }",
        "function f($a, [string] $b = 'c', [ValidateSet('d', 'e')] [string[]] $f) { param }",
        "function f { [CmdletBinding(SupportsShouldProcess)] param([Parameter(Mandatory = $true, Position = 0)] $a, $b = (1, 2)) begin { } process { } end { } }",
        "try { 1 } catch [System.IO.IOException], [System.Exception] { throw } catch { 2 } finally { foreach ($a in $b) { break } }",
        "try { 1 } finally { & { return } }",
        "if ($a) { 1 }\nelseif ($b) { 2 }\n\nelse { 3 }",
        "$a = if ($b) { 1 } else { 2 }; $c = foreach ($d in $e) { $d }; $f = switch ($g) { default { 1 } }",
        ":outer while ($true) { do { continue outer } until ($a) }",
        "for ($a = 1; $a -lt 2; $a++) { }\nfor (;;) { break }\nfor ($b = 1\n$b\n) { }",
        "switch -Regex -CaseSensitive ($a) { 'x' { 1 } { $_ } { 2 } 3 { 4 } default { 5 } }\nswitch -File a { b { } }",
        "trap [System.Exception] { continue }",
        "$a = @{ b = 1; 'c d' = 2; $e = 3\n4 = 5; if = 6; f = Get-Item g }",
        "[ordered] @{ a = 1 }",
        "@{ a = 1 }.a",
        "@(1, 2)[0]; (1, 2)[-1..0]; $a[1, 2]; , 1; -not $a; !$b; - 1; -1; +1; 1..5; $a..$b",
        "[int] '1' + [int] $a; [System.Math]::Min(1, 2); [string]::Join(',', @($a | Sort-Object))",
        "[System.Collections.Generic.Dictionary[string, int[]]]::new(); [a[][,]]; [a, b, Version=1.0]",
        "[void] $a.Add(1); [void] [a]::b(); [ref] $c; f ([ref] $d)",
        "$a -split ',', 2 -join '' -replace 'a', 'b' -f $c -is [int] -notin $d -shl 1",
        "-split $a; -join $a",
        "1kb + 1.5e3 + 0x1F + 1l + 1d + .5 + 1.0mb",
        "7z.exe a; 2to3; net.exe use x: \\\\a\\b; a=b; a\"b c\"d; a'b'$c; -x",
        "$a.b.c().d[0].'e f'.\"g$h\".$i.($j)",
        "$a.\n  b",
        "$a::b; $a::c()",
        "$$; $?; $^; $_; ${a b}; ${env:c}; $env:d",
        "a `\n  b `\n  -c",
        "<# block\ncomment #> a # line",
        "a#b; a <# c #> d",
        "return\nexit 1\nthrow 'a'\n",
        "{ param($a) $a }.Invoke(1)",
        "$a | ForEach-Object { $_.b } | Where-Object b -eq 'c'",
        "$a.Where({ $_ }).ForEach{ $_ }",
        "cmd --% /c \"a | b",
        "a -b`:c",
        "\u{201c}quotes\u{201d} \u{2013}eq 'dashes\u{2019}",
    ];
    let refused: Vec<String> =
        texts.iter().flat_map(|text| [seven(text), windows(text)].map(|verdict| Some(format!("{} {text}", verdict.err()?)))).flatten().collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Tests texts that every PowerShell rejects.
#[test]
fn bad_texts_are_refused() {
    let texts = [
        // Texts.
        "'abc",
        "\"abc",
        "a'b",
        "a\"b $c",
        "@'\nabc\n '@",
        "@' a\n'@",
        "\"$(1\"",
        "\"$( ')' )\"",
        "\"$a: b\"",
        "\"$script: b\"",
        "\"${a\"",
        "\"${}\"",
        "\"$(1 + )\"",
        "a `",
        // Variables.
        "$a: = 1",
        "Get-Item $Path: -Force",
        "$a b",
        "@a",
        "$b = @a",
        "f (@a)",
        "f -b:@a",
        "@",
        // Targets.
        "1 = 2",
        "'a' = 1",
        "$a, 1 = 2",
        "$a + 1 = 2",
        "($a + 1)++",
        "1++",
        "[int] $a, 2 = 3",
        "$a, $b += 1",
        "Get-Item().a = = 1",
        "$using:a = 1",
        // Operators.
        "$a +",
        "$a -eq",
        "$a -equals 1",
        "-not",
        "--a",
        "1,",
        "$a = ",
        "$a = 1 2",
        "$a $b",
        "$a = $b Get-Item",
        // Commands.
        "a,",
        "a -b, c",
        "a b,",
        "a, b",
        "a -b:",
        "| a",
        "a |",
        "a | | b",
        "a | 1",
        "&",
        ". | a",
        "a >",
        "a > b > c",
        "a 2>&2",
        "a < b",
        // Brackets.
        "(",
        "(1",
        "1)",
        "()",
        "f()",
        "@(1",
        "@{ a }",
        "@{ a = }",
        "@{ a = 1 b = 2 }",
        "@{ a = 1, }",
        "@{ a = 1; A = 2 }",
        "{ 1",
        "}",
        "$a[",
        "$a[]",
        "$a[1",
        "$a.",
        "$a.b(",
        "$a.b(1,)",
        "$a.b(1 2)",
        "[int",
        "[]",
        "[a[]",
        "[a(]",
        "[string",
        // Statements.
        "if { 1 }",
        "if () { 1 }",
        "if ($a) 1",
        "if ($a { 1 }",
        "if ($a) { 1 } else 2",
        "while ($a)",
        "foreach ($a of $b) { 1 }",
        "foreach (a in $b) { 1 }",
        "foreach ($a in) { 1 }",
        "foreach -Parallel ($a in $b) { 1 }",
        "for ($a = 1; $a -lt 2; $a++ { 1 }",
        "do { 1 }",
        "switch ($a) { }",
        "switch { 1 { 2 } }",
        "switch ($a) { 1 2 }",
        "switch ($a) { default { 1 } default { 2 } }",
        "try { 1 }",
        "try { 1 } catch",
        "try { 1 } catch { 2 } catch [System.Exception] { 3 }",
        "try { 1 } catch [System.Exception] { 2 } catch [System.IO.IOException] { 3 }",
        "try { 1 } finally { return }",
        "try { 1 } finally { break }",
        "foreach ($a in $b) { try { 1 } finally { continue } }",
        "trap",
        // Functions.
        "function { 1 }",
        "function f",
        "function f( { 1 }",
        "function f($a, ) { 1 }",
        "function f(a) { 1 }",
        "function f($a $b) { 1 }",
        "function f([string]) { 1 }",
        "function f([string $a) { 1 }",
        "function f($a = ) { 1 }",
        "function f($a, $A) { 1 }",
        "function f($a) { param($b) }",
        "function f { param([ValidateSet($b)] $a) }",
        "function f { param([Parameter(Mandatory, Mandatory)] $a) }",
        "function f { begin { } 1 }",
        "function f { begin { } begin { } }",
        "workflow f { 1 }",
        // Types.
        "[ordered] 1",
        "[int] [ref] $a",
        "[void] $a = 1",
        "[Parameter()] 1",
        "[int] if ($a) { 1 }",
        "from a",
    ];
    let taken: Vec<&str> = texts.into_iter().filter(|text| seven(text).is_ok() || windows(text).is_ok()).collect();
    assert!(taken.is_empty(), "{}", taken.join("\n"));
}

#[test]
fn what_only_version_7_knows_is_refused_for_windows() {
    let texts = [
        "$a ?? $b",
        "$a ??= 1",
        "$a ? 1 : 2",
        "${a}?.b",
        "${a}?[0]",
        "a && b",
        "a || b",
        "a &",
        "a\n| b",
        "function f { process { 1 } clean { 2 } }",
        "$a.b[int]()",
        "$a + 1u + 2uy + 3n",
        "$a + 0b11",
        "\"`e[0m\"",
        "\"`u{2190}\"",
    ];
    let refused: Vec<&str> = texts.into_iter().filter(|text| seven(text).is_err()).collect();
    let taken: Vec<&str> = texts.into_iter().filter(|text| windows(text).is_ok()).collect();
    assert_eq!((refused, taken), (vec![], vec![]));
}
