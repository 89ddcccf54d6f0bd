# What every *.Tests.ps1 starts from: the functions of the runner, a directory of its own in place of C:\ProgramData\capw, and commands of
# Windows that this system lacks, as functions that do nothing and know the parameters of Windows PowerShell 5.1.
#
# The tests need Pester 5 in Windows PowerShell 5.1 or PowerShell 7 (Pester 3.4, which comes with Windows, cannot read them):
# Invoke-Pester -Path src\bootstrap\runner. On Linux and under Wine they run too; what only Windows has is mocked or left out there.
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$flags = @('All', 'AtStartup', 'Confirm', 'Force', 'Once', 'Online')
$known = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText("$PSScriptRoot/commands-5.1.json"))
foreach ($command in $known.commands.PSObject.Properties) {
    if ($null -ne (Get-Command -Name $command.Name -ErrorAction SilentlyContinue)) { continue }
    $parameters = @($command.Value | ForEach-Object {
        $flag = ''
        if ($flags -contains $_) { $flag = '[switch] ' }
        "$flag`$$_"
    })
    # Those of whose parameters nothing is known are given what they work on by the pipeline.
    if ($parameters.Count -eq 0) { $parameters = @('[Parameter(ValueFromPipeline = $true)] $InputObject') }
    $body = [scriptblock]::Create("[CmdletBinding()] param($([string]::Join(', ', $parameters))) process { }")
    $null = New-Item -Path "function:global:$($command.Name)" -Value $body
}

# The cmdlets that are given a text while a script runs, which Windows keeps in its event log where module logging is on.
function Get-Leak([scriptblock] $Script, [string] $Secret) {
    $trace = [System.IO.Path]::Combine([string] $TestDrive, "$([System.Guid]::NewGuid()).trace")
    $null = Trace-Command -Name 'ParameterBinding' -FilePath $trace -Expression $Script
    $bound = ''
    $found = @{}
    foreach ($line in [System.IO.File]::ReadAllLines($trace)) {
        if ($line -match 'BIND .* \[([A-Za-z]+-[A-Za-z]+)\]$') { $bound = $Matches[1] }
        if (-not $line.Contains($Secret)) { continue }
        $command = Get-Command -Name $bound -ErrorAction SilentlyContinue
        if ($null -ne $command -and $command.CommandType -eq 'Cmdlet') { $found[$bound] = $true }
    }
    return [string]::Join(' ', @($found.Keys | Sort-Object))
}

# A stream without a file, which adds each call with its last argument to a list.
function New-NotedStream($Calls) {
    $stream = New-Object PSObject
    foreach ($name in @('Write', 'Flush', 'Dispose')) {
        $note = [scriptblock]::Create("[void] `$Calls.Add('$name ' + `$args[-1])").GetNewClosure()
        $stream.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod($name, $note)))
    }
    return $stream
}

$Root = [System.IO.Path]::Combine([string] $TestDrive, 'capw')
$Payload = [System.IO.Path]::Combine($Root, 'payload')
$Source = 'task'
. "$PSScriptRoot/report.ps1"
. "$PSScriptRoot/files.ps1"
. "$PSScriptRoot/journal.ps1"
. "$PSScriptRoot/windows.ps1"
. "$PSScriptRoot/items.ps1"
. "$PSScriptRoot/programs.ps1"
. "$PSScriptRoot/scripts.ps1"
. "$PSScriptRoot/plan.ps1"
[void] [System.IO.Directory]::CreateDirectory($MarkerDirectory)
[void] [System.IO.Directory]::CreateDirectory($Payload)
$SpareLogFile = [System.IO.Path]::Combine($Root, 'spare.log')
