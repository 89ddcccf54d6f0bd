# The kinds of items: Test-<kind>Item says whether it is true and changes nothing, Set-<kind>Item makes it true.

# --- directory: paths, access
function Test-DirectoryItem($Item) {
    foreach ($path in @($Item.paths)) {
        if (-not [System.IO.Directory]::Exists($path) -or -not (Test-Access $path $Item.access $true)) { return $false }
    }
    return $true
}

function Set-DirectoryItem($Item) {
    foreach ($path in @($Item.paths)) {
        [void] [System.IO.Directory]::CreateDirectory($path)
        Set-Access $path $Item.access $true
    }
}

# --- file: path, source in the payload, sha256, access
function Test-FileItem($Item) {
    if (-not [System.IO.File]::Exists($Item.path)) { return $false }
    return (Get-FileDigest $Item.path) -ceq $Item.sha256 -and (Test-Access $Item.path $Item.access $false)
}

function Set-FileItem($Item) {
    $source = "$Payload\$($Item.source.Replace('/', '\'))"
    if ((Get-FileDigest $source) -cne $Item.sha256) { throw "expected $($Item.source) with digest $($Item.sha256), found another" }
    [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($Item.path))
    # Next to its target, with its access before it has content that others may not read.
    $temporary = "$($Item.path).new"
    [System.IO.File]::WriteAllText($temporary, '')
    Set-Access $temporary $Item.access $false
    [System.IO.File]::WriteAllBytes($temporary, [System.IO.File]::ReadAllBytes($source))
    Move-Over $temporary $Item.path
    # What replaces a file takes over its access.
    Set-Access $Item.path $Item.access $false
}

# --- registry: key, name, data {string | dword}
function Get-RegistryData($Item) {
    $text = Get-Field $Item.data 'string' $null
    if ($null -ne $text) { return @{ Type = 'String'; Value = $text } }
    return @{ Type = 'DWord'; Value = $Item.data.dword }
}

function Test-RegistryItem($Item) {
    $wanted = Get-RegistryData $Item
    $found = Get-RegistryValue $Item.key $Item.name
    if ($null -eq $found) { return $false }
    return (Get-Item -LiteralPath $Item.key).GetValueKind($Item.name).ToString() -eq $wanted.Type -and $found -ceq $wanted.Value
}

function Set-RegistryItem($Item) {
    $wanted = Get-RegistryData $Item
    if (-not (Test-Path -LiteralPath $Item.key)) { $null = New-Item -Path $Item.key -Force }
    $null = New-ItemProperty -LiteralPath $Item.key -Name $Item.name -PropertyType $wanted.Type -Value $wanted.Value -Force
}

# --- environment: name, value (of the machine)
function Test-EnvironmentItem($Item) {
    return [System.Environment]::GetEnvironmentVariable($Item.name, 'Machine') -ceq $Item.value
}

function Set-EnvironmentItem($Item) {
    [System.Environment]::SetEnvironmentVariable($Item.name, $Item.value, 'Machine')
}

# --- feature: names. A feature that waits for a restart counts; the item of kind reboot settles it.
function Test-FeatureItem($Item) {
    foreach ($name in @($Item.names)) {
        $feature = Get-WindowsOptionalFeature -Online -FeatureName $name
        if ($null -eq $feature) { throw "Windows does not know the feature $name" }
        if (@('Enabled', 'EnablePending') -notcontains [string] $feature.State) { return $false }
    }
    return $true
}

function Set-FeatureItem($Item) {
    foreach ($name in @($Item.names)) {
        Invoke-Program @('dism.exe', '/Online', '/Enable-Feature', "/FeatureName:$name", '/All', '/NoRestart', '/Quiet') $env:SystemRoot $Item.seconds @(0, 3010)
        if ($script:ExitCode -eq 3010) { Set-RestartWanted }
    }
}

# --- firewall: name, protocol, port (inbound, allowed for every profile: virtual adapters are often in the public one)
function Test-FirewallItem($Item) {
    $rule = Get-NetFirewallRule -Name $Item.name -ErrorAction SilentlyContinue
    if ($null -eq $rule) { return $false }
    $filter = Get-NetFirewallPortFilter -AssociatedNetFirewallRule $rule
    return [string] $rule.Enabled -eq 'True' -and [string] $rule.Direction -eq 'Inbound' -and [string] $rule.Action -eq 'Allow' -and
        [string] $rule.Profile -eq 'Any' -and $filter.Protocol -eq $Item.protocol -and [string] $filter.LocalPort -eq [string] $Item.port
}

function Set-FirewallItem($Item) {
    Remove-NetFirewallRule -Name $Item.name -ErrorAction SilentlyContinue
    $null = New-NetFirewallRule -Name $Item.name -DisplayName $Item.name -Group 'capw' -Direction Inbound -Action Allow -Profile Any -Protocol $Item.protocol -LocalPort $Item.port
}

# --- service: name, commandLine, start, dependsOn (none: as it is), resetSeconds, restartDelays
function Test-ServiceItem($Item) {
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($Item.name)"
    if ($null -eq (Get-Service -Name $Item.name -ErrorAction SilentlyContinue)) { return $false }
    $start = @{ auto = 2; demand = 3 }[$Item.start]
    $depends = [string]::Join(' ', @(Get-Field $Item 'dependsOn' @()))
    return (Get-RegistryValue $key 'ImagePath') -ceq $Item.commandLine -and (Get-RegistryValue $key 'Start') -eq $start -and
        ($depends -eq '' -or [string]::Join(' ', @(Get-RegistryValue $key 'DependOnService')) -ieq $depends) -and
        (Get-RegistryValue $key 'FailureActionsOnNonCrashFailures') -eq 1 -and
        (Get-FailureActions (Get-RegistryValue $key 'FailureActions')) -ceq (Get-WantedActions $Item)
}

# The registry holds five numbers (reset seconds, -, -, count, -) and then pairs of kind (1: restart) and milliseconds.
function Get-FailureActions([byte[]] $Bytes) {
    if ($null -eq $Bytes -or $Bytes.Length -lt 20 -or $Bytes.Length % 4 -ne 0) { return '' }
    $numbers = @(for ($at = 0; $at -lt $Bytes.Length; $at += 4) { [System.BitConverter]::ToUInt32($Bytes, $at) })
    $actions = @($numbers | Select-Object -Skip 5)
    return "$($numbers[0]): $([string]::Join(' ', $actions))"
}

function Get-WantedActions($Item) {
    $actions = @($Item.restartDelays | ForEach-Object { "1 $_" })
    return "$($Item.resetSeconds): $([string]::Join(' ', $actions))"
}

function Set-ServiceItem($Item) {
    $depends = [string[]] @(Get-Field $Item 'dependsOn' @())
    $mode = @{ auto = 'Automatic'; demand = 'Manual' }[$Item.start]
    if ($null -eq (Get-Service -Name $Item.name -ErrorAction SilentlyContinue)) {
        $null = New-Service -Name $Item.name -BinaryPathName $Item.commandLine -StartupType $mode
    }
    # Not sc.exe: its own quoting of quotes in a command line is a trap.
    $service = Get-CimInstance -ClassName Win32_Service -Filter "Name='$($Item.name)'"
    $arguments = @{ PathName = $Item.commandLine; StartMode = $mode }
    if ($depends.Count -gt 0) { $arguments.ServiceDependencies = $depends }
    $result = Invoke-CimMethod -InputObject $service -MethodName Change -Arguments $arguments
    if ($result.ReturnValue -ne 0) { throw "the service manager answers $($result.ReturnValue) to the change of $($Item.name)" }
    $actions = [string]::Join('/', @($Item.restartDelays | ForEach-Object { "restart/$_" }))
    Invoke-Program @('sc.exe', 'failure', $Item.name, 'reset=', [string] $Item.resetSeconds, 'actions=', $actions) $env:SystemRoot $Item.seconds
    Invoke-Program @('sc.exe', 'failureflag', $Item.name, '1') $env:SystemRoot $Item.seconds
}

# --- running: name, after (items whose last change it must have seen)
function Test-RunningItem($Item) {
    $service = Get-Service -Name $Item.name -ErrorAction SilentlyContinue
    if ($null -eq $service -or [string] $service.Status -ne 'Running') { return $false }
    $number = (Get-CimInstance -ClassName Win32_Service -Filter "Name='$($Item.name)'").ProcessId
    $started = (Get-Process -Id $number).StartTime.ToUniversalTime().Ticks
    foreach ($id in @(Get-Field $Item 'after' @())) {
        $marker = Get-Marker $id
        if ($null -ne $marker -and [int64] $marker.acted -gt $started) { return $false }
    }
    return $true
}

function Set-RunningItem($Item) {
    $limit = [System.TimeSpan]::FromSeconds($Item.seconds)
    $service = Get-Service -Name $Item.name
    if ([string] $service.Status -ne 'Stopped') {
        if ([string] $service.Status -ne 'StopPending') { $service.Stop() }
        $service.WaitForStatus('Stopped', $limit)
    }
    $service.Start()
    $service.WaitForStatus('Running', $limit)
}

# --- task: name, argv (at every start, as SYSTEM)
function Test-TaskItem($Item) {
    $task = Get-ScheduledTask -TaskName $Item.name -ErrorAction SilentlyContinue
    if ($null -eq $task) { return $false }
    $action = @($task.Actions)[0]
    $argv = @($Item.argv)
    return $action.Execute -ceq $argv[0] -and [string] $action.Arguments -ceq (ConvertTo-CommandLine $argv[1..($argv.Count - 1)])
}

function Set-TaskItem($Item) {
    $argv = @($Item.argv)
    $definition = @{
        TaskName = $Item.name; Force = $true
        Action = New-ScheduledTaskAction -Execute $argv[0] -Argument (ConvertTo-CommandLine $argv[1..($argv.Count - 1)])
        Trigger = New-ScheduledTaskTrigger -AtStartup
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet -RestartCount 3 -RestartInterval (New-TimeSpan -Minutes 1) -ExecutionTimeLimit (New-TimeSpan -Hours 2)
    }
    $null = Register-ScheduledTask @definition
}

# --- command: argv, directory, check
function Test-CommandItem($Item) {
    return Test-Check $Item.check
}

function Set-CommandItem($Item) {
    Invoke-Program @($Item.argv) $Item.directory $Item.seconds
}

# --- wait: check
function Test-WaitItem($Item) {
    return Test-Check $Item.check
}

function Set-WaitItem($Item) {
    $end = [System.DateTime]::UtcNow.AddSeconds($Item.seconds)
    while (-not (Test-Check $Item.check)) {
        if ([System.DateTime]::UtcNow -gt $end) { throw "$(Get-Finding $Item.check) within $($Item.seconds) seconds" }
        Start-Sleep -Seconds 1
    }
}

# --- reboot: when pending. The runner itself asks for the restart.
function Test-RebootItem($Item) {
    return -not (Test-RestartWanted)
}

# --- absent: paths, tasks
function Test-AbsentItem($Item) {
    foreach ($path in @($Item.paths)) {
        if (Test-Path -LiteralPath $path) { return $false }
    }
    foreach ($task in @(Get-Field $Item 'tasks' @())) {
        if ($null -ne (Get-ScheduledTask -TaskName $task -ErrorAction SilentlyContinue)) { return $false }
    }
    return $true
}

function Set-AbsentItem($Item) {
    foreach ($path in @($Item.paths)) {
        if (Test-Path -LiteralPath $path) { Remove-Item -LiteralPath $path -Recurse -Force }
    }
    # Tasks last: they are what goes on after a kill.
    foreach ($task in @(Get-Field $Item 'tasks' @())) {
        if ($null -ne (Get-ScheduledTask -TaskName $task -ErrorAction SilentlyContinue)) { Unregister-ScheduledTask -TaskName $task -Confirm:$false }
    }
}
