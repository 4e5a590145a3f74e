package main

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCodeOfDocuments_IsCompiled checks that each block of Go code in the listed documents is part of a file that is
// compiled and tested, and that each block of configuration is part of a file that is tested.
func TestCodeOfDocuments_IsCompiled(t *testing.T) {
	block := regexp.MustCompile("(?s)```(?:go|yaml|ini)\n(.*?)```")
	for document, files := range map[string][]string{
		"README.md":                 {"examples/readme/readme_test.go"},
		"docs/changefeed.md":        {"adapters/changefeed/example_test.go"},
		"docs/changefeed-stores.md": {"examples/tasks/database/main.go"},
		"docs/elections.md":         {"examples/readme/readme_test.go"},
		"docs/elector.md":           {"elector/example_test.go"},
		"docs/etcd.md":              {"adapters/etcd/example_test.go"},
		"docs/getting-started.md":   {"examples/gettingstarted/main.go", "examples/gettingstarted/main_test.go"},
		"docs/migration.md":         {"migration/example_test.go"},
		"docs/raftlog.md":           {"adapters/raftlog/example_test.go"},
		"docs/tasks/config.md":      {"examples/tasks/config/main.go"},
		"docs/tasks/cron.md": {
			"examples/tasks/cron/main.go", "examples/tasks/cron/invoices.service", "examples/tasks/cron/invoices.timer",
			"examples/tasks/cron/invoices-check.service", "examples/tasks/cron/invoices-check.timer",
		},
		"docs/tasks/database.md":  {"examples/tasks/database/main.go"},
		"docs/tasks/discovery.md": {"examples/tasks/discovery/main.go"},
		"docs/tasks/job.md":       {"examples/gettingstarted/main.go"},
		"docs/tasks/kubernetes.md": {
			"examples/tasks/kubernetes/main.go", "examples/tasks/kubernetes/main_test.go", "deploy/kubernetes/base/deployment.yaml", "deploy/kubernetes/base/rbac.yaml",
			"deploy/kubernetes/sidecar/sidecar.yaml",
		},
		"docs/tasks/leader.md": {
			"examples/tasks/leader/main.go", "examples/tasks/leader/deployment.yaml", "examples/tasks/leader/report.service",
		},
		"docs/tasks/lock.md":      {"examples/tasks/lock/main.go"},
		"docs/tasks/observe.md":   {"example_test.go", "examples/tasks/leader/main.go"},
		"docs/tasks/shards.md":    {"examples/tasks/shards/main.go"},
		"docs/tasks/workqueue.md": {"examples/tasks/workqueue/main.go"},
	} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		var tested strings.Builder
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			tested.WriteByte('\n')
			tested.Write(source)
		}
		blocks := block.FindAllStringSubmatch(string(text), -1)
		if document == "README.md" {
			blocks = blocks[1:] // TestReadme_FirstProgramRuns runs the first block
		}
		require.NotEmpty(t, blocks, document)
		for _, b := range blocks {
			assert.Contains(t, tested.String(), "\n"+b[1], "a block of %s is not in %v", document, files)
		}
	}
}

// TestLinksOfDocuments_Exist checks that each link between documents leads to an existing file or heading.
func TestLinksOfDocuments_Exist(t *testing.T) {
	var (
		code    = regexp.MustCompile("(?ms)^```.*?^```|^    .*?$")
		heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
		link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
		dropped = regexp.MustCompile(`\]\([^)]*\)|[^\p{L}\p{N}_ -]`) // the parts of a heading that its anchor does not contain
	)
	out, err := exec.Command("git", "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("the repository is not a git checkout:", err)
	}
	for document := range strings.FieldsSeq(string(out)) {
		source, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(string(source), ""), -1) {
			target, anchor := path.Join(path.Dir(document), l[1]), l[2]
			if strings.HasPrefix(l[1], "http") {
				continue
			}
			if l[1] == "" {
				target = document
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s links %s", document, l[0]) || anchor == "" {
				continue
			}
			text, err := os.ReadFile(target)
			require.NoError(t, err)
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
				name := dropped.ReplaceAllString(strings.ToLower(h[1]), "")
				anchors = append(anchors, strings.ReplaceAll(name, " ", "-"))
			}
			assert.Contains(t, anchors, anchor, "%s links %s", document, l[0])
		}
	}
}

// TestReadingTimes_MatchNumberOfWords checks that the reading times in docs/README.md are right within a tenth, at
// 200 words of prose a minute. Blocks of code do not count.
func TestReadingTimes_MatchNumberOfWords(t *testing.T) {
	const wordsPerMinute = 200
	var (
		code    = regexp.MustCompile("(?ms)^```.*?^```")
		page    = regexp.MustCompile(`\]\(([a-z/-]+\.md)[#)]`)
		minutes = regexp.MustCompile(`take about (\d+) minutes to read`)
	)
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	stated := 0
	for section := range strings.SplitSeq(string(index), "\n## ") {
		m := minutes.FindStringSubmatch(section)
		if m == nil {
			continue
		}
		stated++
		read, words := map[string]bool{}, 0
		for _, l := range page.FindAllStringSubmatch(section, -1) {
			if read[l[1]] {
				continue
			}
			read[l[1]] = true
			text, err := os.ReadFile(path.Join("docs", l[1]))
			require.NoError(t, err)
			words += len(strings.Fields(code.ReplaceAllString(string(text), "")))
		}
		name, _, _ := strings.Cut(section, "\n")
		want, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		assert.InEpsilon(t, want, float64(words)/wordsPerMinute, 0.1, "section %s: %d words", name, words)
	}
	assert.Equal(t, 5, stated, "sections that state a time")
}

// TestDocuments_NameOnlyExistingTests checks that documents name only tests that exist.
func TestDocuments_NameOnlyExistingTests(t *testing.T) {
	out, err := exec.Command("git", "grep", "-hoE", "func Test[A-Z][A-Za-z0-9_]*", "--", "*_test.go", "*_test.go.txt").Output()
	if err != nil {
		t.Skip("the repository is not a git checkout:", err)
	}
	tests := strings.Fields(string(out))
	out, err = exec.Command("git", "grep", "-oE", "`Test[A-Z][A-Za-z0-9_]*`", "--", "*.md").Output()
	require.NoError(t, err)
	for named := range strings.FieldsSeq(string(out)) {
		_, test, _ := strings.Cut(named, ":")
		assert.True(t, slices.Contains(tests, strings.Trim(test, "`")), named)
	}
}
