# Removes from the container network of Windows (HNS) what containers left behind that are gone. Run by a task at each start.
# An endpoint is named after its container, NUMBER_NETWORK. It is stale when no compute system has that number and no process is told of
# it, at two looks a minute apart: one that is just being made is not taken for it, whichever is faster after a start.
param([int] $Seconds = 60, [string] $Log = 'C:\ProgramData\capw\network.log')
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

# Endpoints without their container, by id.
function Get-StaleEndpoint {
    $running = @(Get-ComputeProcess | ForEach-Object { ([string] $_.Id).ToLowerInvariant() })
    # Not every Windows lists its compute systems; the process that looks after a container has its number as an argument.
    $lines = [string]::Join("`n", @(Get-CimInstance -ClassName Win32_Process | ForEach-Object { [string] $_.CommandLine })).ToLowerInvariant()
    $stale = @{}
    foreach ($endpoint in @(Get-HnsEndpoint)) {
        if ([string] $endpoint.Name -notmatch '^([0-9a-f]{64})_') { continue }
        $container = $Matches[1]
        # Those with a virtual machine of their own have two: the machine and what runs in it.
        if ($running -notcontains $container -and $running -notcontains "$container@vm" -and -not $lines.Contains($container)) { $stale["$($endpoint.Id)"] = $endpoint }
    }
    return $stale
}

# Without the feature Containers there is nothing to clean.
if ($null -eq (Get-Command -Name 'Get-HnsEndpoint' -ErrorAction SilentlyContinue)) { exit 0 }
$before = Get-StaleEndpoint
if ($before.Count -eq 0) { exit 0 }
Start-Sleep -Seconds $Seconds
$now = Get-StaleEndpoint
foreach ($id in @($now.Keys | Where-Object { $before.ContainsKey($_) })) {
    $said = 'removed'
    try { $null = $now[$id] | Remove-HnsEndpoint } catch { $said = "cannot be removed: $($_.Exception.Message)" }
    [System.IO.File]::AppendAllText($log, "$([System.DateTime]::UtcNow.ToString('o')) endpoint $id $($now[$id].Name) $said`r`n")
}
