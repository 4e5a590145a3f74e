//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

var prometheusServer = flag.String("prometheus", "", "the Prometheus server that TestMonitoring_DashboardQueriesHaveResults uses, for example prometheus")

// The files for Prometheus and Grafana that operators install.
const (
	rulesDir      = "../../deploy/prometheus"
	dashboardFile = "../../deploy/grafana/dashboard.json"
)

// alertRules returns the expression of each alert by its name.
func alertRules(t *testing.T) map[string]string {
	t.Helper()
	rules := make(map[string]string)
	for _, name := range []string{"leaderelection.yml", "elector.yml"} {
		var file struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
		text, err := os.ReadFile(filepath.Join(rulesDir, name))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &file))
		for _, group := range file.Groups {
			for _, rule := range group.Rules {
				rules[rule.Alert] = rule.Expr
			}
		}
	}
	require.NotEmpty(t, rules)
	return rules
}

// dashboardQueries returns the queries of the dashboard, with values instead of its variables.
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, strings.NewReplacer("$election", ".*", "$__rate_interval", "1m").Replace(target.Expr))
		}
	}
	require.NotEmpty(t, queries)
	return queries
}

// TestMonitoring_UsesExportedMetrics checks that the alerts and the dashboard use only metrics that elector exports,
// that the dashboard shows all of these metrics, and that each alert is documented and has a test that fires it.
func TestMonitoring_UsesExportedMetrics(t *testing.T) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		newTestServer(t, &elector.Elector{}).metrics.registry.Describe(descriptions)
		close(descriptions)
	}()
	exported := make(map[string]bool)
	for d := range descriptions {
		if name := regexp.MustCompile(`fqName: "((?:leader)?elect(?:or|ion)_\w+)"`).FindStringSubmatch(d.String()); name != nil {
			exported[name[1]] = true
		}
	}
	require.Contains(t, exported, "leaderelection_leader")

	shown := make(map[string]bool) // the metrics that the dashboard shows
	use := func(expression string, by map[string]bool) {
		for _, name := range regexp.MustCompile(`\b(?:leaderelection|elector)_\w+`).FindAllString(expression, -1) {
			name = regexp.MustCompile(`_seconds_(bucket|count|sum)$`).ReplaceAllString(name, "_seconds")
			assert.Contains(t, exported, name, expression)
			by[name] = true
		}
	}
	for _, query := range dashboardQueries(t) {
		use(query, shown)
	}
	for name := range exported {
		assert.Contains(t, shown, name, "the dashboard does not show it")
	}
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	tests, err := os.ReadFile(filepath.Join(rulesDir, "rules_test.yml"))
	require.NoError(t, err)
	for alert, expression := range alertRules(t) {
		use(expression, make(map[string]bool))
		assert.True(t, strings.Contains(string(page), "| `"+alert+"` |"), "docs/operations.md does not describe %s", alert)
		fires := regexp.MustCompile(`alertname: ` + alert + `\n +eval_time: \w+\n +exp_alerts:\n`)
		assert.True(t, fires.Match(tests), "in rules_test.yml, %s never fires", alert)
	}
}

// TestMonitoring_DashboardQueriesHaveResults checks that a Prometheus server accepts the alerting rules, and returns
// a result for each query of the dashboard. The test needs Prometheus: "make monitoring" runs it.
func TestMonitoring_DashboardQueriesHaveResults(t *testing.T) {
	if *prometheusServer == "" {
		t.Skip("no -prometheus")
	}
	handler := func(context.Context, *leaderelection.Leadership) error { return nil }
	w := newTestServer(t, &elector.Elector{Begin: handler, Work: handler, End: handler})
	w.metrics.setState(elector.Report{State: elector.StateLeader, Since: time.Now()})
	record := w.metrics.recordEvent()
	instance := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// Record events of every kind, so that something happens between two scrapes.
		for kind := event.Joined; kind <= event.Watched; kind++ {
			record(event.Event{Kind: kind, Duration: time.Millisecond, Missed: 1})
		}
		record(event.Event{Kind: event.Checked, Err: errors.New("not confirmed")})
		l, _ := candidacy.NewLeadership(7, nil)
		assert.NoError(t, w.elector.Begin(r.Context(), l))
		w.newHandler().ServeHTTP(rw, r)
	}))
	defer instance.Close()
	server := startPrometheus(t, strings.TrimPrefix(instance.URL, "http://"))

	for _, query := range dashboardQueries(t) {
		var reply string
		require.Eventually(t, func() bool {
			_, reply = server.get("/api/v1/query?query=" + url.QueryEscape(query))
			require.NotContains(t, reply, `"status":"error"`, query)
			return strings.Contains(reply, `"value":[`)
		}, patience, 100*time.Millisecond, "%s: %s", query, reply)
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	_, text := server.get("/api/v1/rules")
	require.NoError(t, json.Unmarshal([]byte(text), &rules))
	loaded := make(map[string]string)
	for _, group := range rules.Data.Groups {
		for _, rule := range group.Rules {
			loaded[rule.Name] = rule.Health
		}
	}
	for alert := range alertRules(t) {
		require.Equal(t, "ok", loaded[alert], alert)
	}
}

// startPrometheus starts a Prometheus server that scrapes the given instance every second and loads the alerting
// rules. It returns when the server has evaluated the rules.
func startPrometheus(t *testing.T, instance string) *webClient {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(rulesDir)
	require.NoError(t, err)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q, %q]
scrape_configs: [{job_name: elector, static_configs: [{targets: [%q]}]}]
`, filepath.Join(rules, "leaderelection.yml"), filepath.Join(rules, "elector.yml"), instance)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	port, err := testenv.ReservePort()
	require.NoError(t, err)
	t.Cleanup(port.Release)
	address := fmt.Sprintf("127.0.0.1:%d", port.Number)
	var log strings.Builder
	cmd := exec.Command(*prometheusServer, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = io.Discard, &log
	require.NoError(t, cmd.Start())
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	server := &webClient{t, "http://" + address, &http.Client{Transport: transport, Timeout: patience}}
	server.waitForPage("/-/ready", 200, "")
	server.waitForPage("/api/v1/rules", 200, `"lastEvaluation":"2`)
	return server
}
