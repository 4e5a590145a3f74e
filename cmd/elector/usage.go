package main

import (
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// usage returns an error of usage. If the message begins with a flag, usage adds an example of that flag.
func usage(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	name := strings.FieldsFunc(err.Error(), func(c rune) bool { return c == ' ' || c == ':' || c == ',' })
	if len(name) > 0 && strings.HasPrefix(name[0], "--") && !strings.Contains(err.Error(), "for example") {
		if example := flagExamples[name[0][len("--"):]]; example != "" {
			err = fmt.Errorf("%w; for example %s %s", err, name[0], example)
		}
	}
	return &cmdline.Error{Code: cmdline.Usage, Err: err}
}

// flagExamples contains a valid value for each flag, which errors of usage show as an example.
var flagExamples = map[string]string{
	"allowed-names":        "node1.example.com",
	"allowed-client-names": "monitoring.example.com",
	"also":                 "etcd",
	"also-election":        "/jobs/report",
	"client-secret-file":   "/etc/elector/client-secret",
	"backend":              "zookeeper",
	"begin-timeout":        "1m",
	"ca-file":              "ca.pem",
	"cert-file":            "client.pem --key-file client-key.pem",
	"cluster":              "report",
	"dir":                  "/var/lib/elector",
	"config":               "/etc/elector/report.yaml",
	"election":             "/jobs/report",
	"end-pause":            "5s",
	"end-timeout":          "30s",
	"end-tries":            "12",
	"error-timeout":        "30s",
	"etcd-endpoints":       "etcd1:2379,etcd2:2379,etcd3:2379",
	"etcd-user":            "elector",
	"grace":                "10s",
	"instance-id":          "web-1",
	"interval":             "1s",
	"is-leader":            "web-1",
	"listen":               "127.0.0.1:8080",
	"log-format":           "json",
	"log-level":            "warn",
	"peer-id":              "a",
	"peer-listen":          "0.0.0.0:8047",
	"peers":                "a=10.0.0.1:8047,b=10.0.0.2:8047,c=10.0.0.3:8047",
	"secret-file":          "/etc/elector/secret",
	"session-timeout":      "10s",
	"store":                "postgres://elector@db1/jobs",
	"store-unsafe":         "failover",
	"timeout":              "30s",
	"under":                "/jobs",
	"value":                "10.0.0.1:8080",
	"zookeeper-auth":       "user:password",
	"zookeeper-servers":    "zk1:2181,zk2:2181,zk3:2181",
}

// checkAddress returns a usage error if the value of a flag is not an address of the form host:port. The
// host can be empty, and the port can be a name.
func checkAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil && port != "" {
		if _, err = net.LookupPort("tcp", port); err == nil {
			return nil
		}
		return usage("--%s %s: %q is not a port", flag, address, port)
	}
	return usage("--%s %s: not of the form host:port", flag, address)
}

// checkText returns a usage error if the value of a flag has more than limit bytes, or contains characters that
// cannot be printed. Other clients can see such a value.
func checkText(flag, text string, limit int) error {
	switch {
	case strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }):
		return usage("--%s %q contains characters that cannot be printed", flag, text)
	case len(text) > limit:
		return usage("--%s has %d bytes, but the maximum is %d", flag, len(text), limit)
	}
	return nil
}

// checkSessionTimeout returns a usage error if the session timeout is shorter than minimum, or longer than an hour.
func (s *settings) checkSessionTimeout(minimum time.Duration) error {
	if d := s.sessionTimeout; d < minimum || d > time.Hour {
		return usage("--session-timeout %v: not from %v to 1h", d, minimum)
	}
	return nil
}
