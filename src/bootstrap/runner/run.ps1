# Carries out node.json. Started by the loader, at each start of the machine; killed anywhere, it goes on with the first item that is not
# true.
# Exit codes: 0 done, or failed and said so; 1002 the runner itself failed, or could not keep what later starts need; 1003 restart and call
# again (only for cloudbase-init).
# Locked: the caller holds the lock.
param([ValidateSet('cloudbase', 'task')][string] $Source = 'task', [string] $Payload = (Split-Path -Parent $PSScriptRoot), [switch] $Locked)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$Root = Split-Path -Parent $Payload
$code = 1002
$lock = $null
try {
    # First what tells of a failure. If it cannot be read, it is the loader that tells.
    . "$PSScriptRoot/report.ps1"
    . "$PSScriptRoot/files.ps1"
    . "$PSScriptRoot/journal.ps1"
    . "$PSScriptRoot/windows.ps1"
    . "$PSScriptRoot/items.ps1"
    . "$PSScriptRoot/programs.ps1"
    . "$PSScriptRoot/scripts.ps1"
    . "$PSScriptRoot/plan.ps1"
    if (-not $Locked) { $lock = Enter-Lock 3600 }
    if (-not $Locked -and $null -eq $lock) {
        Write-Log 'another runner has been busy for an hour'
    } else {
        $text = Read-Text ([System.IO.Path]::Combine($Payload, 'node.json'))
        $Plan = ConvertFrom-Json -InputObject $text
        Open-State (Get-TextDigest $text)
        $code = Invoke-Plan
        if ($code -eq 0 -and $Journal.lost) { $code = 1002 }
    }
} catch {
    $code = 1002
    Send-Failure $_
} finally {
    if ($null -ne $lock) { $lock.Dispose() }
}
exit $code
