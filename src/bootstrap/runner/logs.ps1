# Cuts logs whose writers never let go of them: what is written is moved to FILE.1, FILE.1 to FILE.2 and so on. Run by a task.
# Lines that are written while the copy ends may be lost.
# Paths: divided by |, because a task hands over one text.
param([string] $Paths, [int] $Megabytes = 100, [int] $Keep = 5)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

function Move-Log([string] $Path) {
    for ($number = $Keep - 1; $number -ge 1; $number--) {
        if (-not [System.IO.File]::Exists("$Path.$number")) { continue }
        [System.IO.File]::Delete("$Path.$($number + 1)")
        [System.IO.File]::Move("$Path.$number", "$Path.$($number + 1)")
    }
    # One handle for both: the writer appends, so it goes on at the new end.
    $log = New-Object System.IO.FileStream($Path, [System.IO.FileMode]::Open, [System.IO.FileAccess]::ReadWrite, [System.IO.FileShare]::ReadWrite)
    try {
        $copy = [System.IO.File]::Create("$Path.1")
        try { $log.CopyTo($copy) } finally { $copy.Dispose() }
        $log.SetLength(0)
    } finally {
        $log.Dispose()
    }
}

$code = 0
foreach ($path in $Paths.Split('|')) {
    try {
        $file = New-Object System.IO.FileInfo($path)
        if ($file.Exists -and $file.Length -ge $Megabytes * 1048576) { Move-Log $path }
    } catch {
        # The others are cut all the same; the code is the last result of the task.
        $code = 1
    }
}
exit $code
