/* pdh.dll for Wine, which has 2 performance counters where the kubelet asks for 5: every counter exists, has one instance and stands at 1. */
#include <windows.h>
#define CALL __declspec(dllexport) LONG WINAPI
#define MORE_DATA ((LONG)0x800007D2)

typedef struct {
    LPWSTR name;
    DWORD status;
    double value;
} ITEM; /* PDH_FMT_COUNTERVALUE_ITEM_W of 64 bits, format PDH_FMT_DOUBLE */

static WCHAR instance[] = L"Ethernet";

CALL PdhOpenQuery(LPCWSTR source, DWORD_PTR data, HANDLE *query) { *query = (HANDLE)1; return 0; }
CALL PdhOpenQueryW(LPCWSTR source, DWORD_PTR data, HANDLE *query) { *query = (HANDLE)1; return 0; }
CALL PdhValidatePathW(LPCWSTR path) { return 0; }
CALL PdhAddCounterW(HANDLE query, LPCWSTR path, DWORD_PTR data, HANDLE *counter) { *counter = (HANDLE)2; return 0; }
CALL PdhAddEnglishCounterW(HANDLE query, LPCWSTR path, DWORD_PTR data, HANDLE *counter) { *counter = (HANDLE)2; return 0; }
CALL PdhCollectQueryData(HANDLE query) { return 0; }
CALL PdhCloseQuery(HANDLE query) { return 0; }
CALL PdhGetFormattedCounterValue(HANDLE counter, DWORD format, DWORD *type, void *value) { return 0; }
CALL PdhGetFormattedCounterArrayW(HANDLE counter, DWORD format, DWORD *size, DWORD *count, ITEM *items) {
    DWORD room = *size;
    *size = sizeof(ITEM);
    *count = 1;
    if (room < sizeof(ITEM)) return MORE_DATA;
    *items = (ITEM){instance, 0, 1.0};
    return 0;
}
