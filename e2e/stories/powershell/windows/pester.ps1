# Runs the runner's Pester tests and prints `error: …` for each that fails, and the share of its commands that they ran.
param([string] $Directory)
$ErrorActionPreference = 'Stop'
Import-Module Pester -MinimumVersion 5.0

$configuration = New-PesterConfiguration
$configuration.Run.Path = $Directory
$configuration.Run.PassThru = $true
$configuration.Output.Verbosity = 'None'
$configuration.CodeCoverage.Enabled = $true
$configuration.CodeCoverage.Path = @(Get-ChildItem -LiteralPath $Directory -Filter '*.ps1' | Where-Object { $_.Name -notlike '*.Tests.ps1' } | ForEach-Object { $_.FullName })
$configuration.CodeCoverage.OutputPath = [System.IO.Path]::GetTempFileName()
$result = Invoke-Pester -Configuration $configuration
foreach ($test in $result.Failed) { [System.Console]::WriteLine("error: $($test.ExpandedPath): $($test.ErrorRecord[0].Exception.Message)") }
foreach ($container in $result.FailedContainers) { [System.Console]::WriteLine("error: $($container.Item): $($container.ErrorRecord)") }
foreach ($test in $result.Skipped) { [System.Console]::WriteLine("skipped: $($test.ExpandedPath)") }
foreach ($missed in $result.CodeCoverage.CommandsMissed) { [System.Console]::WriteLine("missed: $($missed.File):$($missed.Line) $($missed.Command)") }
[System.Console]::WriteLine("passed $($result.PassedCount), failed $($result.FailedCount), skipped $($result.SkippedCount), covered $([int] $result.CodeCoverage.CoveragePercent) percent")
