//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

var browser = flag.String("browser", "", "the browser that TestBrowser_OtherOriginCannotAccessDevServer uses, for example chromium")

// hostilePage is a web page that sends requests to the address of --control, and then a request to its own server,
// which tells the test that the page has run.
const hostilePage = `<!DOCTYPE html><title>hostile</title><body><script>
(async () => {
	const control = "http://%s", results = [];
	for (const [path, options] of [
		["/restart?lose=all", {method: "POST", mode: "no-cors"}],
		["/restart?lose=all", {method: "POST", headers: {"X-Elector": "1"}}],
		["/tree", {}], ["/tree", {mode: "no-cors"}],
	]) {
		results.push(await fetch(control + path, options).then(r => r.type + " " + r.status, e => "failed"));
	}
	document.body.textContent = "results: " + results.join(", ");
	await fetch("/done");
})();
</script></body>`

// TestBrowser_OtherOriginCannotAccessDevServer checks that a web page of another origin can neither change the
// servers of elector dev-server nor read their data. The test needs a browser: "make browser" runs it.
func TestBrowser_OtherOriginCannotAccessDevServer(t *testing.T) {
	if *browser == "" {
		t.Skip("no -browser")
	}
	e := zktest.StartEnsemble(t, 1)
	f, err := startFaultServer("127.0.0.1:0", e)
	require.NoError(t, err)
	defer f.close()
	conn, _, err := e.Server(0).Connect(patience)
	require.NoError(t, err)
	_, err = conn.Create("/data", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	var done atomic.Bool
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/done" {
			done.Store(true)
			return
		}
		fmt.Fprintf(w, hostilePage, f.address)
	}))
	defer page.Close()
	_, port, _ := strings.Cut(f.address, ":")
	profile := t.TempDir()
	browse := func(url string) string { return runBrowser(t, profile, url) }
	for _, host := range []string{"localhost", "127.0.0.1", "evil.example"} { // the second host is the host of --control, with another port
		done.Store(false)
		text := browse(strings.Replace(page.URL, "127.0.0.1", host, 1))
		require.True(t, done.Load(), "the page did not run: %s", text)
		require.Contains(t, text, "results: ", host)
		require.NotContains(t, text, "200", host)
		require.Contains(t, e.Tree(), "data", "the page of %s has restarted the servers", host)
	}
	require.NotContains(t, browse("http://evil.example:"+port+"/tree"), "data", "a page with the name of another host was sent")
	require.Contains(t, browse("http://127.0.0.1:"+port+"/tree"), "data")
}

// runBrowser opens a page in the browser, and returns its HTML document after ten seconds.
func runBrowser(t *testing.T, profile, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, *browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+profile,
		"--host-resolver-rules=MAP evil.example 127.0.0.1", "--virtual-time-budget=10000", "--dump-dom", url).Output()
	require.NoError(t, err)
	return string(out)
}

// TestBrowser_StatusPageUpdatesItself checks that the page of --listen updates itself in a browser, that the browser
// applies the style of the page, and that the browser neither executes nor loads anything that the name of a
// candidate contains.
func TestBrowser_StatusPageUpdatesItself(t *testing.T) {
	if *browser == "" {
		t.Skip("no -browser")
	}
	var pages, others atomic.Int64
	w := newPageServer(t, "/e", func(context.Context) ([]candidateInfo, error) {
		return []candidateInfo{{Name: "<img src=/evil onerror=\"fetch('/evil')\"><script>fetch('/evil')</script>", Token: pages.Load()}}, nil
	})
	server := httptest.NewServer(withCommonHeaders(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.run.leader.set(&candidateInfo{Name: fmt.Sprint("leader", pages.Add(1)), Token: pages.Load()})
		case "/favicon.ico":
		default:
			others.Add(1)
		}
		w.newHandler().ServeHTTP(rw, r)
	})))
	defer server.Close()
	text := runBrowser(t, t.TempDir(), server.URL)
	require.Greater(t, pages.Load(), int64(2), text)
	require.Contains(t, text, fmt.Sprintf("<strong>leader%d</strong>", pages.Load()))
	require.Contains(t, text, fmt.Sprintf("<title>leader%d leads /e</title>", pages.Load()))
	require.Contains(t, text, "&lt;img src=/evil")
	require.NotContains(t, text, `class="stale"`)
	require.Zero(t, others.Load(), "the browser has loaded something else")
}
