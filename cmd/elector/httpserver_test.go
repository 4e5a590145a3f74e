//go:build unix

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestIsAllowedHost_RejectsForeignNames checks that isAllowedHost accepts IP addresses, localhost and the configured
// names as Host header, and rejects all other names, which DNS rebinding could use.
func TestIsAllowedHost_RejectsForeignNames(t *testing.T) {
	names := []string{"elector.example.com"}
	for header, want := range map[string]bool{
		"":                                true, // requests of HTTP/1.0 have no Host header
		"127.0.0.1:8080":                  true,
		"10.0.0.7":                        true,
		"[::1]:8080":                      true,
		"[::1]":                           true,
		"localhost":                       true,
		"LocalHost:2180":                  true,
		"localhost.:2180":                 true,
		"Elector.example.com:8080":        true,
		"elector.example.com.":            true,
		"evil.example":                    false,
		"evil.example:2180":               false,
		"127.0.0.1.evil.example":          false,
		"localhost.evil.example:8080":     false,
		"elector.example.com.evil:80":     false,
		"sub.elector.example.com":         false,
		"elector.example.com@evil.com:80": false,
		"127.0.0.1:80:80":                 false,
	} {
		require.Equal(t, want, isAllowedHost(header, names), "%q", header)
	}
}

// TestCheckedHosts_ChecksLoopbackAndGivenNames checks that the Host header of requests is checked if the server
// listens on a loopback address, or if the user has given host names.
func TestCheckedHosts_ChecksLoopbackAndGivenNames(t *testing.T) {
	for _, test := range []struct {
		listen   string
		loopback bool
		given    []string
		want     []string
		check    bool
	}{
		{"localhost:8080", true, nil, []string{"localhost"}, true},
		{"127.0.0.1:8080", true, []string{"a"}, []string{"127.0.0.1", "a"}, true},
		{":8080", false, nil, []string{""}, false},
		{"Web1:8080", false, []string{"web"}, []string{"web1", "web"}, true},
	} {
		names, check := checkedHosts(test.listen, test.loopback, test.given)
		require.Equal(t, test.want, names)
		require.Equal(t, test.check, check, test.listen)
	}
}

// TestRejectControl_RejectsRequestsOfWebPages checks that rejectControl rejects requests that a web page in a browser
// can send, and accepts requests of curl.
func TestRejectControl_RejectsRequestsOfWebPages(t *testing.T) {
	const mine, evil = "127.0.0.1:2180", "evil.example:2180"
	for _, test := range []struct {
		name, method, host string
		header             map[string]string
		want               string // part of the reason; "" if the request is accepted
	}{
		{"curl", "GET", mine, nil, ""},
		{"curl with a name", "GET", "localhost:2180", nil, ""},
		{"curl with the host of --control", "POST", "dev.example:2180", map[string]string{"X-Elector": "1"}, ""},
		{"curl with POST", "POST", mine, map[string]string{"X-Elector": "1"}, ""},
		{"address bar", "GET", mine, map[string]string{"Sec-Fetch-Site": "none"}, ""},
		{"link of the page", "GET", mine, map[string]string{"Sec-Fetch-Site": "same-origin"}, ""},
		{"rebinding", "GET", evil, map[string]string{"Sec-Fetch-Site": "same-origin"}, "Host"},
		{"rebinding with the header", "POST", evil, map[string]string{"X-Elector": "1"}, "Host"},
		{"form of another page", "POST", mine, map[string]string{"Origin": "https://evil.example"}, "Origin"},
		{"form with the header", "POST", mine, map[string]string{"Origin": "https://evil.example", "X-Elector": "1"}, "Origin"},
		{"sandboxed page", "POST", mine, map[string]string{"Origin": "null", "X-Elector": "1"}, "Origin"},
		{"preflight", "OPTIONS", mine, map[string]string{"Origin": "https://evil.example"}, "Origin"},
		{"image of another page", "GET", mine, map[string]string{"Sec-Fetch-Site": "cross-site"}, "Sec-Fetch-Site"},
		{"image of another port", "GET", mine, map[string]string{"Sec-Fetch-Site": "same-site"}, "Sec-Fetch-Site"},
		{"form of an old browser", "POST", mine, nil, "X-Elector"},
		{"other method", "DELETE", mine, nil, "X-Elector"},
	} {
		header := http.Header{}
		for name, value := range test.header {
			header.Set(name, value)
		}
		got := rejectControl(test.method, test.host, header, []string{"dev.example"})
		if test.want == "" {
			require.Empty(t, got, test.name)
		} else {
			require.Contains(t, got, test.want, test.name)
		}
	}
}

// TestDevServer_RefusesRequestsOfWebPages checks that a request that a web page can send receives no data from
// dev-server and does not change its servers.
func TestDevServer_RefusesRequestsOfWebPages(t *testing.T) {
	e := zktest.StartEnsemble(t, 1)
	f, err := startFaultServer("127.0.0.1:0", e)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer f.close()
	conn, _, err := e.Server(0).Connect(patience)
	require.NoError(t, err)
	_, err = conn.Create("/data", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Host = "evil.example" },
		func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		func(r *http.Request) { r.Header.Del(controlHeader) },
	} {
		for method, path := range map[string]string{"GET": "/tree", "POST": "/restart?lose=all"} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.address+path, nil)
			require.NoError(t, err)
			r.Header.Set(controlHeader, "1")
			change(r)
			if method == "GET" && r.Header.Get(controlHeader) == "" {
				continue
			}
			response, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			response.Body.Close()
			require.Equal(t, http.StatusForbidden, response.StatusCode)
			require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
		}
	}
	require.Contains(t, e.Tree(), "data")
}

// TestWebServer_RejectsOtherHosts checks that the server of --listen sends no page if the Host header names another
// host, and sets the common security headers on each response.
func TestWebServer_RejectsOtherHosts(t *testing.T) {
	w := newTestServer(t, &elector.Elector{})
	for _, check := range []bool{false, true} {
		handler := withCommonHeaders(w.checkHost(w.newHandler(), []string{"web1"}, check))
		for _, page := range []string{"/", "/leader", "/readyz", "/healthz", "/metrics"} {
			for host, allowed := range map[string]bool{"127.0.0.1:80": true, "web1": true, "evil.example": !check} {
				recorder, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, page, nil)
				r.Host = host
				handler.ServeHTTP(recorder, r)
				require.Equal(t, allowed, recorder.Code != http.StatusMisdirectedRequest, "%s of %s", page, host)
				if !allowed {
					require.JSONEq(t, `{"ok":false,"reason":"host"}`, recorder.Body.String())
				}
				require.Equal(t, "nosniff", recorder.Header().Get("X-Content-Type-Options"))
				require.Equal(t, "no-store", recorder.Header().Get("Cache-Control"))
			}
		}
	}
}

// TestConnectionLimit_AllowsQuarterOfDescriptors checks that connectionLimit permits connections to use at most a
// quarter of the file descriptors of the process.
func TestConnectionLimit_AllowsQuarterOfDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 1, 8: 2, 64: 16, 128: 32, 1 << 20: 32, 1<<64 - 1: 32} {
		require.Equal(t, want, connectionLimit(descriptors))
	}
}
