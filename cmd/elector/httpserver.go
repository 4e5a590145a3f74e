package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/transport"
)

// newHTTPServer returns a server for --listen or --control. The server keeps at most limit connections, and closes
// connections that are slow or idle.
func newHTTPServer(handler http.Handler, limit int, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           withCommonHeaders(handler),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 5 * time.Second,
		ConnState:      (&connections{limit: limit}).change,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// withCommonHeaders adds headers that tell browsers not to guess the content type of pages, not to embed them in
// other pages, and not to store them.
func withCommonHeaders(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"Cache-Control":                "no-store",
			"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
			"X-Frame-Options":              "DENY",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy":              "no-referrer",
		} {
			rw.Header().Set(name, value)
		}
		handler.ServeHTTP(rw, r)
	})
}

// isAllowedHost reports whether a Host header is empty, or contains an IP address, localhost or one of the names. A
// web page of another host can make the name of that host resolve to an address of this machine, and then read the
// responses to requests with that name (DNS rebinding).
func isAllowedHost(header string, names []string) bool {
	host := hostName(header)
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "" || host == "localhost" ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}

// hostName returns the host of host:port or of a host without a port, in lower case.
func hostName(address string) string {
	return strings.TrimSuffix(strings.ToLower(transport.Host(address)), ".")
}

// checkedHosts returns the names that clients of --listen may use in the Host header: the host of --listen, and the
// names of --listen-hosts. check is false, so that clients may use every name, if --listen-hosts is not set and
// other machines can connect: this machine does not know by which names they address it.
func checkedHosts(listen string, loopback bool, given []string) (names []string, check bool) {
	return append([]string{hostName(listen)}, given...), loopback || len(given) > 0
}

// rejectControl returns the reason why a request to --control is rejected, or "" if the request is accepted. A web
// page in a browser of this machine can send requests to that address, and must not have any effect, unlike curl or
// another program. names are the names that the Host header may contain in addition to IP addresses and localhost.
func rejectControl(method, host string, header http.Header, names []string) string {
	switch site := header.Get("Sec-Fetch-Site"); {
	case !isAllowedHost(host, names):
		return fmt.Sprintf("the Host header is %q: use the IP address, localhost, or the host of --control", host)
	case len(header.Values("Origin")) > 0:
		return "the request has an Origin header: web pages may not send requests"
	case site != "" && site != "none" && site != "same-origin":
		return fmt.Sprintf("Sec-Fetch-Site is %q: web pages may not send requests", site)
	case method != http.MethodGet && method != http.MethodHead && header.Get(controlHeader) == "":
		return "the header " + controlHeader + " is missing: for example curl -H '" + controlHeader + ": 1' -X POST ..."
	}
	return ""
}

// controlHeader is a header that a browser does not send for web pages of other origins without permission of the
// server.
const controlHeader = "X-Elector"
