# What items are made of: access, programs, checks, restarts.

# Access in the security descriptor language; by SID, because names of groups are translated. $null: as inherited.
function Get-Sddl([string] $Access, [bool] $Directory) {
    $inherit = ''
    if ($Directory) { $inherit = 'OICI' }
    $admins = "D:P(A;$inherit;FA;;;SY)(A;$inherit;FA;;;BA)"
    if ($Access -eq 'admins') { return $admins }
    $readable = "$admins(A;$inherit;0x1200a9;;;BU)"
    if ($Access -eq 'readable') { return $readable }
    # Below it users may make files and directories (0x6), and whoever made one may do everything with it.
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
    $section = [System.Security.AccessControl.AccessControlSections]::Access
    if ($Directory) {
        $security = [System.IO.Directory]::GetAccessControl($Path, $section)
    } else {
        $security = [System.IO.File]::GetAccessControl($Path, $section)
    }
    return $security.AreAccessRulesProtected -and (Get-Rules $security) -ceq (Get-Rules (New-Security $wanted $Directory))
}

function Set-Access([string] $Path, [string] $Access, [bool] $Directory) {
    $wanted = Get-Sddl $Access $Directory
    if ($null -eq $wanted) { return }
    $security = New-Security $wanted $Directory
    if ($Directory) {
        [System.IO.Directory]::SetAccessControl($Path, $security)
    } else {
        [System.IO.File]::SetAccessControl($Path, $security)
    }
}

function Get-FileDigest([string] $Path) {
    return (Get-FileHash -LiteralPath $Path -Algorithm SHA256).Hash.ToLowerInvariant()
}

# One argument as the C runtime of the program reads it back.
function ConvertTo-Argument([string] $Text) {
    if ($Text -ne '' -and $Text -notmatch '[\s"]') { return $Text }
    $escaped = ($Text -replace '(\\*)"', '$1$1\"') -replace '(\\+)$', '$1$1'
    return "`"$escaped`""
}

function ConvertTo-CommandLine([string[]] $Arguments) {
    return [string]::Join(' ', @($Arguments | ForEach-Object { ConvertTo-Argument $_ }))
}

# What a program that failed said last: the line that it marks as an error, else its last line.
function Get-LastWord([string] $Path) {
    $lines = @((Get-Tail $Path 8000) -split "`r?`n" | Where-Object { $_.Trim() -ne '' } | Select-Object -Last 20)
    if ($lines.Count -eq 0) { return '' }
    $marked = @($lines | Where-Object { $_ -match 'error: |\[ERROR' })
    if ($marked.Count -gt 0) { return $marked[-1].Trim() }
    return $lines[-1].Trim()
}

# The end of a text, for messages.
function Get-Tail([string] $Path, [int] $Characters) {
    if (-not [System.IO.File]::Exists($Path)) { return '' }
    # Some programs end with advice, which would hide the cause.
    $text = ([System.IO.File]::ReadAllText($Path) -replace '(?m)^To see the stack trace of this error.*$', '').Trim()
    if ($text.Length -gt $Characters) { return $text.Substring($text.Length - $Characters) }
    return $text
}

# Runs a program to its end or its time limit. Throws when it does not end with one of the codes that mean success.
# Returns nothing; its code is in $script:ExitCode, what it wrote in $script:Output.
function Invoke-Program([string[]] $Argv, [string] $Directory, [int] $Seconds, [int[]] $Success = @(0)) {
    $output = "$StateDirectory\program.out"
    $errors = "$StateDirectory\program.err"
    $start = @{
        FilePath = $Argv[0]; WorkingDirectory = $Directory; NoNewWindow = $true; PassThru = $true
        RedirectStandardOutput = $output; RedirectStandardError = $errors
    }
    if ($Argv.Count -gt 1) { $start.ArgumentList = ConvertTo-CommandLine $Argv[1..($Argv.Count - 1)] }
    # Programs look for those beside them on the PATH, and an image need not have put them there.
    $beside = [System.IO.Path]::GetDirectoryName($Argv[0])
    if ($beside -ne '' -and -not ";$env:Path;".Contains(";$beside;")) { $env:Path = "$beside;$env:Path" }
    try {
        $process = Start-Process @start
        # Without its handle the exit code is lost when the program ends.
        $null = $process.Handle
        if (-not $process.WaitForExit($Seconds * 1000)) {
            $null = Start-Process -FilePath 'taskkill.exe' -ArgumentList "/T /F /PID $($process.Id)" -NoNewWindow -PassThru -Wait
            throw "$($Argv[0]) did not end within $Seconds seconds"
        }
        $script:ExitCode = $process.ExitCode
        $script:Output = [System.IO.File]::ReadAllText($output)
        Write-Log "$($Argv[0]) ended with $($process.ExitCode)`r`n$(Get-Tail $output 8000)`r`n$(Get-Tail $errors 8000)"
        if ($Success -notcontains $process.ExitCode) {
            $said = Get-LastWord $errors
            if ($said -eq '') { $said = Get-LastWord $output }
            throw "$($Argv[0]) ended with $($process.ExitCode): $said"
        }
    } finally {
        foreach ($file in @($output, $errors)) {
            try { [System.IO.File]::Delete($file) } catch { Write-Log "$file cannot be removed yet" }
        }
    }
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

# Does something hold that can be seen without changing anything?
function Test-Check($Check) {
    $file = Get-Field $Check 'file' $null
    if ($null -ne $file) { return [System.IO.File]::Exists($file) }
    $pipe = Get-Field $Check 'pipe' $null
    # Listed by pattern: to open a pipe would take a connection from its server, and other names may not be paths.
    if ($null -ne $pipe) { return @([System.IO.Directory]::GetFiles('\\.\pipe\', "$pipe*") | Where-Object { $_.EndsWith("\$pipe") }).Count -gt 0 }
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

# What a check found, for the message of a failure.
function Get-Finding($Check) {
    $registry = Get-Field $Check 'registry' $null
    if ($null -ne $registry) { return "expected $($registry.name) $($registry.equals), found '$(Get-RegistryValue $registry.key $registry.name)'" }
    $all = Get-Field $Check 'all' $null
    if ($null -ne $all) { return Get-Finding @(@($all) | Where-Object { -not (Test-Check $_) })[0] }
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

# Remembers that a restart is wanted until the next one.
function Set-RestartWanted {
    [System.IO.File]::WriteAllText("$StateDirectory\restart-wanted", (Get-BootId))
}

function Test-RestartWanted {
    if (Test-Path -LiteralPath 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending') { return $true }
    $wanted = "$StateDirectory\restart-wanted"
    return [System.IO.File]::Exists($wanted) -and [System.IO.File]::ReadAllText($wanted) -ceq (Get-BootId)
}
