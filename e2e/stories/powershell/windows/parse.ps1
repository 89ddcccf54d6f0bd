# Prints `error: file:line message` for each error that PowerShell's parser finds in the scripts of a directory, and how many it has read.
param([string] $Directory)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$files = @(Get-ChildItem -LiteralPath $Directory -Filter '*.ps1')
foreach ($file in $files) {
    $tokens = $null
    $errors = $null
    $null = [System.Management.Automation.Language.Parser]::ParseFile($file.FullName, [ref] $tokens, [ref] $errors)
    foreach ($problem in $errors) { [System.Console]::WriteLine("error: $($file.Name):$($problem.Extent.StartLineNumber) $($problem.Message)") }
}
[System.Console]::WriteLine("parsed $($files.Count) files")
