# The static scripts that a plan names: Test-<name>Script says whether it is true, Set-<name>Script makes it true.

# --- identity: build. Nothing makes another Windows of this one.
function Test-IdentityScript($Item) {
    $key = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    $kind = [string] (Get-RegistryValue $key 'InstallationType')
    return [string] (Get-RegistryValue $key 'CurrentBuildNumber') -ceq [string] $Item.build -and $kind -like 'Server*'
}

function Set-IdentityScript($Item) {
    $key = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    $found = "$(Get-RegistryValue $key 'InstallationType') $(Get-RegistryValue $key 'CurrentBuildNumber').$(Get-RegistryValue $key 'UBR')"
    throw "expected Windows Server of build $($Item.build), found $found"
}

# --- freeSpace: drive, gibibytes
function Get-FreeGibibytes([string] $Drive) {
    return [System.Math]::Floor((New-Object System.IO.DriveInfo($Drive)).AvailableFreeSpace / 1073741824)
}

# Windows refuses to grow by a few sectors: 16 MiB are worth it.
function Test-Growth([string] $Drive) {
    return (Get-PartitionSupportedSize -DriveLetter $Drive).SizeMax - (Get-Partition -DriveLetter $Drive).Size -gt 16777216
}

# Tried once: with enough space a partition need not grow.
$Disk = @{ grown = $false }

function Test-FreeSpaceScript($Item) {
    return (Get-FreeGibibytes $Item.drive) -ge $Item.gibibytes -and ($Disk.grown -or -not (Test-Growth $Item.drive))
}

function Set-FreeSpaceScript($Item) {
    $Disk.grown = $true
    $why = 'its partition has all the space there is'
    try {
        if (Test-Growth $Item.drive) {
            Resize-Partition -DriveLetter $Item.drive -Size (Get-PartitionSupportedSize -DriveLetter $Item.drive).SizeMax
        } else {
            $own = Get-Partition -DriveLetter $Item.drive
            $behind = @(Get-Partition -DiskNumber $own.DiskNumber | Where-Object { $_.Offset -gt $own.Offset })
            if ($behind.Count -gt 0) { $why = "a partition behind it ($($behind[0].Type)) keeps it from being extended" }
        }
    } catch {
        $why = "it cannot be extended: $($_.Exception.Message)"
    }
    $free = Get-FreeGibibytes $Item.drive
    if ($free -lt $Item.gibibytes) { throw "expected $($Item.gibibytes) GiB free on $($Item.drive):, found $free; $why" }
}

# --- clock: url, within (seconds)
# Without a look at the certificate: a wrong clock makes a good one invalid, and only the time is taken from the answer.
function Get-ClockDifference([string] $Url) {
    Invoke-Program @('curl.exe', '--silent', '--show-error', '--insecure', '--head', '--noproxy', '*', '--max-time', '10', $Url) $env:SystemRoot 20
    $found = [System.Text.RegularExpressions.Regex]::Match($Program.output, '(?im)^date:\s*(\S.*?)\s*$')
    if (-not $found.Success) { throw "expected the header Date in the answer of $Url, found none" }
    $there = [System.DateTimeOffset]::ParseExact($found.Groups[1].Value, 'r', [System.Globalization.CultureInfo]::InvariantCulture)
    return [System.Math]::Abs(([System.DateTimeOffset]::UtcNow - $there).TotalSeconds)
}

function Test-ClockScript($Item) {
    return (Get-ClockDifference $Item.url) -lt $Item.within
}

function Set-ClockScript($Item) {
    $waited = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        try { Invoke-Program @('w32tm.exe', '/resync', '/force') $env:SystemRoot 60 } catch { Write-Log $_.Exception.Message }
        $difference = [int] (Get-ClockDifference $Item.url)
        if ($difference -lt $Item.within) { return }
        if ($waited.Elapsed.TotalSeconds -gt $Item.seconds) { throw "expected a clock within $($Item.within) seconds of $($Item.url), found $difference" }
        Start-Sleep -Seconds 5
    }
}

# --- winHttpProxy: server, bypass. Shown as it was set, whatever the language.
function Test-WinHttpProxyScript($Item) {
    Invoke-Program @('netsh.exe', 'winhttp', 'show', 'proxy') $env:SystemRoot 60
    return $Program.output.Contains($Item.server) -and $Program.output.Contains($Item.bypass)
}

function Set-WinHttpProxyScript($Item) {
    Invoke-Program @('netsh.exe', 'winhttp', 'set', 'proxy', "proxy-server=$($Item.server)", "bypass-list=$($Item.bypass)") $env:SystemRoot 60
}

# --- hypervisor
function Test-HypervisorScript($Item) {
    Invoke-Program @('bcdedit.exe', '/enum', '{current}') $env:SystemRoot 60
    return $Program.output -match '(?im)^hypervisorlaunchtype\s+auto\s*$'
}

function Set-HypervisorScript($Item) {
    Set-RestartWanted
    Invoke-Program @('bcdedit.exe', '/set', '{current}', 'hypervisorlaunchtype', 'auto') $env:SystemRoot 60
}

# --- defenderExclusions: paths, processes
function Test-DefenderExclusionsScript($Item) {
    if ($null -eq (Get-Command -Name 'Get-MpPreference' -ErrorAction SilentlyContinue)) { return $true }
    $known = Get-MpPreference
    $missing = @($Item.paths | Where-Object { @($known.ExclusionPath) -notcontains $_ })
    $missing += @($Item.processes | Where-Object { @($known.ExclusionProcess) -notcontains $_ })
    return $missing.Count -eq 0
}

function Set-DefenderExclusionsScript($Item) {
    Add-MpPreference -ExclusionPath $Item.paths -ExclusionProcess $Item.processes
}

# --- firewallOn
function Test-FirewallOnScript($Item) {
    return @(Get-NetFirewallProfile | Where-Object { [string] $_.Enabled -ne 'True' }).Count -eq 0
}

function Set-FirewallOnScript($Item) {
    Set-NetFirewallProfile -All -Enabled True
}

# --- dynamicPorts: protocol, start, count. The answer has the two numbers, in this order.
function Test-DynamicPortsScript($Item) {
    Invoke-Program @('netsh.exe', 'int', 'ipv4', 'show', 'dynamicportrange', "protocol=$($Item.protocol)") $env:SystemRoot 60
    $numbers = @([System.Text.RegularExpressions.Regex]::Matches($Program.output, '(?m):\s*(\d+)\s*$') | ForEach-Object { $_.Groups[1].Value })
    return [string]::Join(' ', $numbers) -ceq "$($Item.start) $($Item.count)"
}

function Set-DynamicPortsScript($Item) {
    $range = @("protocol=$($Item.protocol)", "startport=$($Item.start)", "numberofports=$($Item.count)")
    Invoke-Program (@('netsh.exe', 'int', 'ipv4', 'set', 'dynamicportrange') + $range) $env:SystemRoot 60
}

# --- reservedPorts: protocol, start, count. The answer has lines of first and last port.
function Test-ReservedPortsScript($Item) {
    Invoke-Program @('netsh.exe', 'int', 'ipv4', 'show', 'excludedportrange', "protocol=$($Item.protocol)", 'store=persistent') $env:SystemRoot 60
    foreach ($line in [System.Text.RegularExpressions.Regex]::Matches($Program.output, '(?m)^\s*(\d+)\s+(\d+)')) {
        $last = $Item.start + $Item.count - 1
        if ([int] $line.Groups[1].Value -le $Item.start -and [int] $line.Groups[2].Value -ge $last) { return $true }
    }
    return $false
}

function Set-ReservedPortsScript($Item) {
    $range = @("protocol=$($Item.protocol)", "startport=$($Item.start)", "numberofports=$($Item.count)", 'store=persistent')
    Invoke-Program (@('netsh.exe', 'int', 'ipv4', 'add', 'excludedportrange') + $range) $env:SystemRoot 60
}

# --- domainJoin: domain, blob (what djoin /provision wrote). It comes true with the next restart.
function Test-DomainJoinScript($Item) {
    $computer = Get-CimInstance -ClassName Win32_ComputerSystem
    if ($computer.PartOfDomain -and $computer.Domain -ieq $Item.domain) { return $true }
    $asked = [System.IO.Path]::Combine($StateDirectory, 'domain-join')
    return [System.IO.File]::Exists($asked) -and (Read-Text $asked) -ceq (Get-BootId)
}

function Set-DomainJoinScript($Item) {
    Set-RestartWanted
    Invoke-Program @('djoin.exe', '/requestodj', '/loadfile', $Item.blob, '/windowspath', $env:SystemRoot, '/localos') $env:SystemRoot $Item.seconds
    Write-WholeText ([System.IO.Path]::Combine($StateDirectory, 'domain-join')) (Get-BootId)
}

# --- credentialPlugin: clsid. The list of plug-ins belongs to TrustedInstaller: an administrator has to take it first.
function Test-CredentialPluginScript($Item) {
    return Test-Path -LiteralPath "HKLM:\SYSTEM\CurrentControlSet\Control\CCG\COMClasses\$($Item.clsid)"
}

function Set-CredentialPluginScript($Item) {
    $code = '[DllImport("ntdll.dll")] public static extern int RtlAdjustPrivilege(int privilege, bool enable, bool thread, out bool before);'
    $native = Add-Type -Namespace 'Capw' -Name 'Privilege' -MemberDefinition $code -PassThru
    # SeTakeOwnershipPrivilege and SeRestorePrivilege.
    foreach ($privilege in @(9, 18)) {
        $before = $false
        $answer = $native::RtlAdjustPrivilege($privilege, $true, $false, [ref] $before)
        if ($answer -ne 0) { throw "privilege $privilege cannot be switched on: $answer" }
    }
    $path = 'SYSTEM\CurrentControlSet\Control\CCG\COMClasses'
    $admins = New-Object System.Security.Principal.SecurityIdentifier('S-1-5-32-544')
    $security = New-Object System.Security.AccessControl.RegistrySecurity
    $security.SetOwner($admins)
    Set-KeySecurity $path 'TakeOwnership' $security
    $security = (Get-Item -LiteralPath "HKLM:\$path").GetAccessControl([System.Security.AccessControl.AccessControlSections]::Access)
    $security.AddAccessRule((New-Object System.Security.AccessControl.RegistryAccessRule($admins, 'FullControl', 'Allow')))
    Set-KeySecurity $path 'ChangePermissions' $security
    $null = New-Item -Path "HKLM:\$path\$($Item.clsid)" -Force
}
