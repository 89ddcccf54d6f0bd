# Makes an image of the Windows that was just installed: drivers, guest agent, cloudbase-init, the feature Containers. Then sysprep seals
# it, and the machine switches itself off. Everything it needs lies beside it on the CD.
# -Install, which Windows Setup runs, has Setup run -Start at its end; that registers a task for every start of the machine, which does
# the work. The last step removes all of it. What happens is written to COM1 and to C:\Windows\Temp\capw-image.log; a machine that
# stays on was not sealed.
param([switch] $Install, [switch] $Start, [string] $Windows = $env:SystemRoot)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$task = 'capw-image'
$temp = [System.IO.Path]::Combine($Windows, 'Temp')
$log = [System.IO.Path]::Combine($temp, 'capw-image.log')
# It is there when everything that needs a restart is installed.
$installed = [System.IO.Path]::Combine($temp, 'capw-image.installed')
$complete = [System.IO.Path]::Combine($Windows, 'Setup', 'Scripts', 'SetupComplete.cmd')
# By its full path: a program of that name in a directory of PATH would run as SYSTEM.
$system32 = [System.IO.Path]::Combine($Windows, 'System32')
$powershell = [System.IO.Path]::Combine($system32, 'WindowsPowerShell', 'v1.0', 'powershell.exe')
$options = '-NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File'
$cloudbase = [System.IO.Path]::Combine([string] $env:ProgramFiles, 'Cloudbase Solutions', 'Cloudbase-Init', 'conf')
$configurations = @('cloudbase-init.conf', 'cloudbase-init-unattend.conf')

function Send-Serial([string] $Port, [string] $Line) {
    if ([System.IO.Ports.SerialPort]::GetPortNames() -notcontains $Port) { return }
    $serial = New-Object System.IO.Ports.SerialPort($Port, 115200)
    # Milliseconds; the other end may not be read.
    $serial.WriteTimeout = 2000
    try {
        $serial.Open()
        $serial.Write("$Line`r`n")
    } finally { $serial.Dispose() }
}

function Write-ImageLog([string] $Text) {
    $line = "$([System.DateTime]::UtcNow.ToString('o')) $Text"
    try { [System.IO.File]::AppendAllText($log, "$line`r`n") } catch { $null = $_ }
    try { Send-Serial 'COM1' $line } catch { $null = $_ }
}

# The path of a file on the CD.
function Get-CdPath([string] $Name) {
    return [System.IO.Path]::Combine($PSScriptRoot, $Name)
}

# Without cloudbase-init the machines get their data from Windows Setup.
function Test-Cloudbase {
    return [System.IO.File]::Exists((Get-CdPath $configurations[0]))
}

# A program of Windows, to its end; 3010 asks for a restart. Not Start-Process: that of 5.1 may lose the exit code of a program that ends
# at once. Not &: it does not wait for programs with a window.
function Invoke-SystemProgram([string] $Name, [string] $CommandLine) {
    Write-ImageLog "$Name $CommandLine"
    $program = New-Object System.Diagnostics.ProcessStartInfo([System.IO.Path]::Combine($system32, $Name), $CommandLine)
    $program.WorkingDirectory = $system32
    $program.UseShellExecute = $false
    $process = [System.Diagnostics.Process]::Start($program)
    $process.WaitForExit()
    if (@(0, 3010) -notcontains $process.ExitCode) { throw "$Name ended with $($process.ExitCode)" }
}

function Install-Package([string] $Name) {
    $said = [System.IO.Path]::Combine($temp, "$([System.IO.Path]::GetFileName($Name)).log")
    try {
        Invoke-SystemProgram 'msiexec.exe' "/i `"$(Get-CdPath $Name)`" /qn /norestart /l* `"$said`""
    } catch {
        throw "$Name was not installed: $($_.Exception.Message); $said says why"
    }
}

function Restart-Image {
    Invoke-SystemProgram 'shutdown.exe' '/r /t 5'
}

# Setup keeps the letter of the CD.
function Install-Start {
    [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($complete))
    [System.IO.File]::WriteAllText($complete, "$powershell $options `"$PSCommandPath`" -Start`r`n")
}

# SetupComplete.cmd runs once and may not restart the machine: the task goes on.
function Register-Work {
    $definition = @{
        TaskName = $task; Force = $true
        Action = New-ScheduledTaskAction -Execute $powershell -Argument "$options `"$PSCommandPath`""
        Trigger = New-ScheduledTaskTrigger -AtStartup
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([System.TimeSpan]::Zero) -Priority 4
    }
    $null = Register-ScheduledTask @definition
    Start-ScheduledTask -TaskName $task
}

# A value of the registry as text; '' if there is none.
function Get-KeyValue([string] $Key, [string] $Name) {
    $property = (Get-ItemProperty -LiteralPath $Key).PSObject.Properties[$Name]
    if ($null -eq $property) { return '' }
    return [string] $property.Value
}

function Get-ImageState {
    return Get-KeyValue 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State' 'ImageState'
}

function Wait-Setup {
    # Looks, two seconds apart: an hour.
    for ($look = 0; $look -lt 1800; $look++) {
        if ((Get-ImageState) -eq 'IMAGE_STATE_COMPLETE' -and (Get-KeyValue 'HKLM:\SYSTEM\Setup' 'SystemSetupInProgress') -eq '0') { return }
        Start-Sleep -Seconds 2
    }
    throw 'Windows Setup is not over after an hour'
}

# Before anything is installed: a build without one of them would fail after half an hour.
function Assert-Cd {
    $wanted = @('virtio-win-gt-x64.msi', 'guest-agent\qemu-ga-x86_64.msi')
    if (Test-Cloudbase) { $wanted += @('CloudbaseInitSetup_x64.msi') + $configurations }
    $missing = @($wanted | Where-Object { -not [System.IO.File]::Exists((Get-CdPath $_)) })
    if ($missing.Count -gt 0) { throw "the CD lacks $([string]::Join(', ', $missing)): put it beside Autounattend.xml and make the CD again" }
}

# Updates would install themselves meanwhile, and restart the machines that are made from the image.
function Disable-Update {
    $policy = 'HKLM:\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU'
    if (-not (Test-Path -LiteralPath $policy)) { $null = New-Item -Path $policy -Force }
    $null = New-ItemProperty -LiteralPath $policy -Name 'NoAutoUpdate' -PropertyType DWord -Value 1 -Force
}

function Install-Cloudbase {
    Install-Package 'CloudbaseInitSetup_x64.msi'
    foreach ($name in $configurations) { [System.IO.File]::Copy((Get-CdPath $name), [System.IO.Path]::Combine($cloudbase, $name), $true) }
}

# Nothing could grow over a recovery partition behind C:. It fails where there is none.
function Disable-Recovery {
    try { Invoke-SystemProgram 'reagentc.exe' '/disable' } catch { Write-ImageLog "recovery: $($_.Exception.Message)" }
}

# Cmdlets and programs are not given the text: Windows may keep what they are given.
function Set-RandomPassword {
    $bytes = [byte[]]::new(32)
    $generator = [System.Security.Cryptography.RandomNumberGenerator]::Create()
    $generator.GetBytes($bytes)
    $password = New-Object System.Security.SecureString
    # The end satisfies rules about kinds of characters.
    foreach ($character in "$([System.Convert]::ToBase64String($bytes))Aa1!".ToCharArray()) { $password.AppendChar($character) }
    $account = @(Get-CimInstance -ClassName Win32_UserAccount -Filter 'LocalAccount=TRUE' | Where-Object { $_.SID -like 'S-1-5-21-*-500' })[0]
    Set-LocalUser -SID $account.SID -Password $password
}

# Machines would read the copy that Setup keeps before the answer file on their own drive.
function Remove-AnswerFile {
    $panther = [System.IO.Path]::Combine($Windows, 'Panther')
    foreach ($file in [System.IO.Directory]::GetFiles($panther, '*unattend*.xml', [System.IO.SearchOption]::AllDirectories)) {
        [System.IO.File]::Delete($file)
    }
}

# Not sysprep's /shutdown: only what was sealed is switched off, so that whoever waits for that gets no other image.
function Complete-Image {
    $own = Get-CdPath 'custom.ps1'
    if ([System.IO.File]::Exists($own)) { Invoke-SystemProgram 'WindowsPowerShell\v1.0\powershell.exe' "$options `"$own`"" }
    # Not before the restart: its service must not run here.
    if (Test-Cloudbase) { Install-Cloudbase }
    Disable-Recovery
    Set-RandomPassword
    Remove-AnswerFile
    [System.IO.File]::Delete($complete)
    [System.IO.File]::Delete($installed)
    # Sysprep would keep the task in the image. This run of it goes on.
    Unregister-ScheduledTask -TaskName $task -Confirm:$false
    $line = '/generalize /oobe /mode:vm /quiet /quit'
    if (Test-Cloudbase) { $line = "$line /unattend:`"$([System.IO.Path]::Combine($cloudbase, 'Unattend.xml'))`"" }
    Invoke-SystemProgram 'Sysprep\sysprep.exe' $line
    $state = Get-ImageState
    if ($state -ne 'IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE') {
        throw "sysprep has left $state; $([System.IO.Path]::Combine($system32, 'Sysprep', 'Panther', 'setuperr.log')) says why"
    }
    Write-ImageLog 'the image is sealed'
    Invoke-SystemProgram 'shutdown.exe' '/s /t 5'
}

# What one start of the machine does.
function Start-Work {
    Wait-Setup
    if (-not [System.IO.File]::Exists($installed)) {
        Assert-Cd
        Disable-Update
        Install-Package 'virtio-win-gt-x64.msi'
        Install-Package 'guest-agent\qemu-ga-x86_64.msi'
        Invoke-SystemProgram 'dism.exe' '/Online /Enable-Feature /All /FeatureName:Containers /NoRestart /Quiet'
        [System.IO.File]::WriteAllText($installed, '')
        Restart-Image
    } elseif (Test-Path -LiteralPath 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending') {
        Restart-Image
    } else {
        Complete-Image
    }
}

try {
    if ($Install) { Install-Start } elseif ($Start) { Register-Work } else { Start-Work }
} catch {
    Write-ImageLog "failed: $($_.Exception.Message) $($_.ScriptStackTrace)"
    exit 1
}
exit 0
