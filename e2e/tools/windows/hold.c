/* hold.exe         stays: Wine's services end with the last ordinary program
   hold.exe PIPE    also opens the named pipe first and keeps it: go-winio's servers keep one instance that they never serve, and Wine
                    hands that one to the first client, which would wait for ever
   Prints "holding" once it does. Ends with 1 when the pipe has not come within 60 s. */
#include <stdio.h>
#include <windows.h>

int wmain(int count, WCHAR **words) {
    for (int tries = 0; count > 1; tries++) {
        HANDLE pipe = CreateFileW(words[1], GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
        if (pipe != INVALID_HANDLE_VALUE) break;
        if (tries == 600) {
            wprintf(L"no pipe %ls\n", words[1]);
            return 1;
        }
        Sleep(100);
    }
    puts("holding");
    fflush(stdout);
    Sleep(INFINITE);
    return 0;
}
