# What items are made of: access, programs, checks, restarts.

# The program that ran last: its exit code and what it wrote.
$Program = @{ code = 0; output = '' }

# Access in the security descriptor language; by SID, because names of groups are translated. $null: as inherited.
function Get-Sddl([string] $Access, [bool] $Directory) {
    $inherit = ''
    if ($Directory) { $inherit = 'OICI' }
    $admins = "D:P(A;$inherit;FA;;;SY)(A;$inherit;FA;;;BA)"
    if ($Access -eq 'admins') { return $admins }
    $readable = "$admins(A;$inherit;0x1200a9;;;BU)"
    if ($Access -eq 'readable') { return $readable }
    # Below it users may make files and directories (0x6), and the owner of one may do everything with it.
    if ($Access -eq 'shared' -and $Directory) { return "$readable(A;CIIO;0x6;;;BU)(A;OICIIO;FA;;;CO)" }
    if ($Access -eq 'inherited') { return $null }
    throw "expected access admins, readable, shared (of a directory) or inherited, found '$Access'"
}

# Windows joins rules that can be one and writes rights its own way: what is wanted goes through the same hands as what is there.
function New-Security([string] $Sddl, [bool] $Directory) {
    if ($Directory) {
        $security = New-Object System.Security.AccessControl.DirectorySecurity
    } else {
        $security = New-Object System.Security.AccessControl.FileSecurity
    }
    $security.SetSecurityDescriptorSddlForm($Sddl, [System.Security.AccessControl.AccessControlSections]::Access)
    return $security
}

# The rules of a descriptor, in an order that does not matter.
function Get-Rules($Security) {
    $sddl = $Security.GetSecurityDescriptorSddlForm([System.Security.AccessControl.AccessControlSections]::Access)
    $rules = [System.Text.RegularExpressions.Regex]::Matches($sddl, '\([^)]*\)') | ForEach-Object { $_.Value } | Sort-Object
    return [string]::Join('', @($rules))
}

function Test-Access([string] $Path, [string] $Access, [bool] $Directory) {
    $wanted = Get-Sddl $Access $Directory
    if ($null -eq $wanted) { return $true }
    $security = Invoke-AccessControl $Path $Directory $null
    return $security.AreAccessRulesProtected -and (Get-Rules $security) -ceq (Get-Rules (New-Security $wanted $Directory))
}

function Set-Access([string] $Path, [string] $Access, [bool] $Directory) {
    $wanted = Get-Sddl $Access $Directory
    if ($null -eq $wanted) { return }
    Invoke-AccessControl $Path $Directory (New-Security $wanted $Directory)
}

# A file of the payload by its name in the archive.
function Get-PayloadPath([string] $Source) {
    return [System.IO.Path]::GetFullPath([System.IO.Path]::Combine($Payload, $Source))
}

function Get-FileDigest([string] $Path) {
    return (Get-FileHash -LiteralPath $Path -Algorithm SHA256).Hash.ToLowerInvariant()
}

function ConvertTo-CommandLine([string[]] $Arguments) {
    return [string]::Join(' ', @($Arguments | ForEach-Object { ConvertTo-Argument $_ }))
}

# What a program that failed said last: the line that it marks as an error, else its last line.
function Get-LastWord([string] $Text) {
    $last = ''
    $marked = ''
    $since = 0
    foreach ($line in (Get-Tail $Text 8000).Split("`n")) {
        if ($line.Trim() -eq '') { continue }
        $last = $line.Trim()
        $since++
        if ($last -match 'error: |\[ERROR') {
            $marked = $last
            $since = 0
        }
    }
    # One far above is about something else.
    if ($marked -ne '' -and $since -lt 20) { return $marked }
    return $last
}

# The end of a text, for messages.
function Get-Tail([string] $Text, [int] $Characters) {
    # Some programs end with advice, which would hide the cause.
    $text = ($Text -replace '(?m)^To see the stack trace of this error.*$', '').Trim()
    if ($text.Length -gt $Characters) { return $text.Substring($text.Length - $Characters) }
    return $text
}

# The end of a file that another program may be writing; '' if it cannot be read.
function Read-End([string] $Path) {
    try {
        $stream = [System.IO.File]::Open($Path, [System.IO.FileMode]::Open, [System.IO.FileAccess]::Read, [System.IO.FileShare]'ReadWrite, Delete')
        try {
            if ($stream.Length -gt 8000) { $null = $stream.Seek(-8000, [System.IO.SeekOrigin]::End) }
            return (New-Object System.IO.StreamReader($stream)).ReadToEnd()
        } finally { $stream.Dispose() }
    } catch { return '' }
}

# Runs a program to its end or its time limit. Throws when it does not end with one of the codes that mean success.
# Raw: follows the arguments as it is. Returns nothing; what came of it is in $Program.
function Invoke-Program([string[]] $Argv, [string] $Directory, [int] $Seconds, [int[]] $Success = @(0), [string] $Raw = '') {
    $path = Get-ProgramPath $Argv[0]
    # Programs look for those beside them on the PATH, and an image need not have put them there. Last: nothing beside a program of an
    # image may stand in for a program of Windows.
    $beside = [System.IO.Path]::GetDirectoryName($path)
    if ($beside -ne '' -and -not ";$env:Path;".Contains(";$beside;")) { $env:Path = "$env:Path;$beside" }
    $line = ConvertTo-CommandLine @($Argv | Select-Object -Skip 1)
    if ($Raw -ne '') { $line = "$line $Raw" }
    # The readers of a child that was left behind may keep their threads: there must be others at once.
    $null = [System.Threading.ThreadPool]::SetMinThreads(64, 64)
    $process = Start-Program $path $line $Directory
    try {
        $output = New-Object System.IO.MemoryStream
        $errors = New-Object System.IO.MemoryStream
        $reading = @($process.StandardOutput.BaseStream.CopyToAsync($output), $process.StandardError.BaseStream.CopyToAsync($errors))
        $ended = $process.WaitForExit($Seconds * 1000)
        if (-not $ended) { Stop-ProcessTree $process.Id }
        # A child that it left behind may hold them open for ever.
        try { $null = [System.Threading.Tasks.Task]::WaitAll([System.Threading.Tasks.Task[]] $reading, 2000) } catch { Write-Log "$path is not heard: $_" }
        $Program.output = [System.Text.Encoding]::UTF8.GetString($output.ToArray())
        $complaints = [System.Text.Encoding]::UTF8.GetString($errors.ToArray())
        $said = Get-LastWord $complaints
        if ($said -eq '') { $said = Get-LastWord $Program.output }
        $end = "did not end within $Seconds seconds"
        if ($ended) {
            $Program.code = $process.ExitCode
            $end = "ended with $($Program.code)"
        }
        Write-Log "$($Argv[0]) $end`r`n$(Get-Tail $Program.output 8000)`r`n$(Get-Tail $complaints 8000)"
        if (-not $ended -or $Success -notcontains $Program.code) { throw "$($Argv[0]) ${end}: $said" }
    } finally { $process.Dispose() }
}

# The programs of Windows by their own path: a PATH may lead elsewhere first.
function Get-ProgramPath([string] $Name) {
    $own = [System.IO.Path]::Combine([string] $env:SystemRoot, 'System32', $Name)
    if ([System.IO.Path]::GetDirectoryName($Name) -eq '' -and [System.IO.File]::Exists($own)) { return $own }
    return $Name
}

# A program and all that it started.
function Stop-ProcessTree([int] $Id) {
    $process = Start-Program "$env:SystemRoot\System32\taskkill.exe" "/T /F /PID $Id" $env:SystemRoot
    $null = $process.WaitForExit(30000)
    $process.Dispose()
}

# A registry value as it is stored, or $null. No name: the default value of the key.
function Get-RegistryValue([string] $Key, [string] $Name) {
    if (-not (Test-Path -LiteralPath $Key)) { return $null }
    return (Get-Item -LiteralPath $Key).GetValue($Name, $null, [Microsoft.Win32.RegistryValueOptions]::DoNotExpandEnvironmentNames)
}

# Gives a key below HKEY_LOCAL_MACHINE, opened with that right only, the parts of the descriptor that were set.
function Set-KeySecurity([string] $Path, [string] $Right, $Security) {
    $mode = [Microsoft.Win32.RegistryKeyPermissionCheck]::ReadWriteSubTree
    $key = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($Path, $mode, [System.Security.AccessControl.RegistryRights] $Right)
    if ($null -eq $key) { throw "the registry key $Path does not exist" }
    try { $key.SetAccessControl($Security) } finally { $key.Dispose() }
}

# Gives a value of a key below HKEY_LOCAL_MACHINE these texts. Not by a cmdlet: where module logging is on, Windows keeps what cmdlets are
# given in its event log, and these may be secret.
function Set-TextList([string] $Path, [string] $Name, [string[]] $Texts) {
    $key = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($Path, $true)
    if ($null -eq $key) { throw "the registry key $Path does not exist" }
    try { $key.SetValue($Name, $Texts, [Microsoft.Win32.RegistryValueKind]::MultiString) } finally { $key.Dispose() }
}

# Names of the adapters that have an address, without loopback and addresses that Windows assigns itself.
function Get-OwnNetwork {
    foreach ($adapter in [System.Net.NetworkInformation.NetworkInterface]::GetAllNetworkInterfaces()) {
        if ([string] $adapter.OperationalStatus -ne 'Up' -or [string] $adapter.NetworkInterfaceType -eq 'Loopback') { continue }
        $found = @($adapter.GetIPProperties().UnicastAddresses | ForEach-Object { $_.Address })
        $found = @($found | Where-Object { [string] $_ -notmatch '^(169\.254\.|fe80:)' })
        if ($found.Count -gt 0) { $adapter.Name }
    }
}

# The address from which the machine reaches host:port. Its own routes decide: a datagram socket is connected without a packet.
function Get-SourceAddress([string] $To) {
    $at = $To.LastIndexOf(':')
    $problem = "$To has no address"
    foreach ($there in [System.Net.Dns]::GetHostAddresses($To.Substring(0, $at).Trim('[', ']'))) {
        $socket = New-Object System.Net.Sockets.Socket($there.AddressFamily, 'Dgram', 'Udp')
        try {
            $socket.Connect($there, [int] $To.Substring($at + 1))
            return $socket.LocalEndPoint.Address
        } catch {
            # A name may have addresses of a family to which there is no way.
            $problem = "no network leads to ${there}: $($_.Exception.GetBaseException().Message)"
        } finally { $socket.Dispose() }
    }
    throw $problem
}

# Does something hold that can be seen without changing anything?
function Test-Check($Check) {
    $file = Get-Field $Check 'file' $null
    if ($null -ne $file) { return [System.IO.File]::Exists($file) }
    $pipe = Get-Field $Check 'pipe' $null
    if ($null -ne $pipe) { return @(Get-Pipe $pipe | Where-Object { $_.EndsWith("\$pipe") }).Count -gt 0 }
    $registry = Get-Field $Check 'registry' $null
    if ($null -ne $registry) { return [string] (Get-RegistryValue $registry.key $registry.name) -ieq $registry.equals }
    $value = Get-Field $Check 'registryValue' $null
    if ($null -ne $value) { return $null -ne (Get-RegistryValue $value.key $value.name) }
    $key = Get-Field $Check 'registryKey' $null
    if ($null -ne $key) { return Test-Path -LiteralPath $key }
    $url = Get-Field $Check 'url' $null
    if ($null -ne $url) { return Test-Url $url }
    $port = Get-Field $Check 'port' $null
    if ($null -ne $port) {
        $listeners = [System.Net.NetworkInformation.IPGlobalProperties]::GetIPGlobalProperties().GetActiveTcpListeners()
        return @($listeners | Where-Object { $_.Port -eq $port }).Count -gt 0
    }
    $name = Get-Field $Check 'service' $null
    if ($null -ne $name) {
        $service = Get-Service -Name $name -ErrorAction SilentlyContinue
        return $null -ne $service -and [string] $service.Status -eq 'Running'
    }
    $argv = Get-Field $Check 'succeeds' $null
    if ($null -ne $argv) {
        try { Invoke-Program @($argv) $env:SystemRoot 60 } catch {
            Write-Log $_.Exception.Message
            return $false
        }
        return $true
    }
    $not = Get-Field $Check 'not' $null
    if ($null -ne $not) { return -not (Test-Check $not) }
    $all = Get-Field $Check 'all' $null
    if ($null -ne $all) { return @(@($all) | Where-Object { -not (Test-Check $_) }).Count -eq 0 }
    throw 'this runner does not know that check'
}

# Pipes whose names begin so. Listed by pattern: to open a pipe would take a connection from its server, and other names may not be paths.
function Get-Pipe([string] $Pipe) {
    return [System.IO.Directory]::GetFiles('\\.\pipe\', "$pipe*")
}

# What a check found, for the message of a failure.
function Get-Finding($Check) {
    $registry = Get-Field $Check 'registry' $null
    if ($null -ne $registry) { return "expected $($registry.name) $($registry.equals), found '$(Get-RegistryValue $registry.key $registry.name)'" }
    $all = Get-Field $Check 'all' $null
    if ($null -ne $all) {
        # What was not true may have become true meanwhile.
        foreach ($part in @($all)) { if (-not (Test-Check $part)) { return Get-Finding $part } }
        return 'expected all of them at the same time'
    }
    $argv = Get-Field $Check 'succeeds' $null
    if ($null -ne $argv) { return "expected that $(ConvertTo-CommandLine @($argv)) succeeds, and it does not" }
    foreach ($name in @('file', 'pipe', 'url', 'registryKey', 'port', 'service')) {
        $value = Get-Field $Check $name $null
        if ($null -ne $value) { return "expected $name $value, found none" }
    }
    return 'expected something else'
}

function Test-Url([string] $Url) {
    try {
        $request = [System.Net.WebRequest]::Create($Url)
        $request.Timeout = 5000
        $request.Proxy = $null
        $response = $request.GetResponse()
        try { return [int] $response.StatusCode -eq 200 } finally { $response.Dispose() }
    } catch {
        return $false
    }
}

# Remembers that a restart is wanted until the next one. Before the change that wants it, where that is known: a kill after the change would
# lose it.
function Set-RestartWanted {
    Write-WholeText ([System.IO.Path]::Combine($StateDirectory, 'restart-wanted')) (Get-BootId)
}

function Test-OwnRestartWanted {
    $wanted = [System.IO.Path]::Combine($StateDirectory, 'restart-wanted')
    return [System.IO.File]::Exists($wanted) -and (Read-Text $wanted) -ceq (Get-BootId)
}

# Does the servicing of Windows want a restart?
function Test-RestartPending {
    return Test-Path -LiteralPath 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending'
}

# A wish of Windows that is not ours is worth one restart. If it is still there then, no other one will take it away.
function Test-RestartWanted {
    return (Test-OwnRestartWanted) -or (-not $State.theirs -and (Test-RestartPending))
}
