/* console.exe PROGRAM [ARGUMENT...]          runs a program with an invisible console of its own, as Wine's programs die without one
   console.exe --none PROGRAM [ARGUMENT...]   runs a program that makes its own console, as a service does
   Passes the three standard streams and the exit code through, and takes the program along when it is killed. Everything after the
   first word is the program's command line as it stands. */
#include <stdio.h>
#include <wchar.h>
#include <windows.h>

static int cannot(const WCHAR *what) {
    fwprintf(stderr, L"console.exe: cannot start %ls: error %lu\n", what, GetLastError());
    return 126;
}

/* What follows the first word. */
static WCHAR *rest(WCHAR *line) {
    for (int quoted = 0; *line && (quoted || (*line != L' ' && *line != L'\t')); line++) quoted ^= *line == L'"';
    while (*line == L' ' || *line == L'\t') line++;
    return line;
}

int wmain(int count, WCHAR **words) {
    WCHAR *line = rest(GetCommandLineW());
    DWORD console = CREATE_NO_WINDOW;
    if (count > 1 && !wcscmp(words[1], L"--none")) {
        line = rest(line);
        console = DETACHED_PROCESS;
    }
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    HANDLE streams[] = {start.hStdInput, start.hStdOutput, start.hStdError};
    for (int i = 0; i < 3; i++) SetHandleInformation(streams[i], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE};
    HANDLE job = CreateJobObjectW(NULL, NULL);
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    PROCESS_INFORMATION process;
    if (!*line || !CreateProcessW(NULL, line, NULL, NULL, TRUE, console | CREATE_SUSPENDED, NULL, NULL, &start, &process))
        return cannot(line);
    if (!AssignProcessToJobObject(job, process.hProcess) || ResumeThread(process.hThread) == (DWORD)-1) return cannot(line);
    DWORD code = 1;
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
