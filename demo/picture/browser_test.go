package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	browser     = flag.String("browser", "", "the browser that TestBrowser uses, for example chromium")
	screenshots = flag.String("screenshots", "", "the directory in which TestBrowser keeps its screenshots")
)

// measureLines is a page that prints, for each line of the picture, its text and the horizontal
// distance of its first and last visible characters, in widths of a character. A browser that has
// removed spaces has no position for the last characters.
const measureLines = `<!DOCTYPE html><body style="margin:0">%s<pre id="lines"></pre><script>
document.getElementById("lines").textContent = JSON.stringify([...document.querySelectorAll("text")].map(line => {
	const text = line.textContent, first = text.search(/\S/), last = text.trimEnd().length - 1
	const probe = line.cloneNode(); probe.textContent = "00"; line.parentNode.append(probe)
	const width = probe.getStartPositionOfChar(1).x - probe.getStartPositionOfChar(0).x
	const column = i => i < line.getNumberOfChars() ? (line.getStartPositionOfChar(i).x - line.getAttribute("x")) / width : -1
	const columns = {text, first: column(first), last: column(last)}
	probe.remove()
	return columns
}))
</script></body>`

// TestBrowser fails if a browser does not draw each character of a picture in its column. It needs
// a browser: "make screenshots" runs it.
func TestBrowser(t *testing.T) {
	if *browser == "" {
		t.Skip("no -browser")
	}
	for _, theme := range themes {
		picture, err := os.ReadFile("../../docs/demo-" + theme.name + ".svg")
		require.NoError(t, err)
		page := filepath.Join(t.TempDir(), "page.html")
		require.NoError(t, os.WriteFile(page, fmt.Appendf(nil, measureLines, picture), 0o644))
		dom := browse(t, page, "--dump-dom")
		found := regexp.MustCompile(`(?s)<pre id="lines">(.*?)</pre>`).FindStringSubmatch(dom)
		require.NotNil(t, found, dom)
		var lines []struct {
			Text        string
			First, Last float64
		}
		unescape := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
		require.NoError(t, json.Unmarshal([]byte(unescape.Replace(found[1])), &lines))
		require.Greater(t, len(lines), 10)
		for _, line := range lines {
			runes := []rune(line.Text)
			indent := len(runes) - len([]rune(strings.TrimLeft(line.Text, " ")))
			assert.InDelta(t, indent, line.First, 0.2, "%s: %q", theme.name, line.Text)
			assert.InDelta(t, len(runes)-1, line.Last, 0.2, "%s: %q", theme.name, line.Text)
		}
		if *screenshots != "" {
			shot := filepath.Join(*screenshots, "demo-"+theme.name+".png")
			browse(t, page, "--screenshot="+shot)
			require.FileExists(t, shot)
		}
	}
}

// browse loads the page in a headless browser, and returns what the browser prints.
func browse(t *testing.T, page, action string) string {
	t.Helper()
	args := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + t.TempDir(),
		"--window-size=720,1200", action, "file://" + page,
	}
	out, err := exec.Command(*browser, args...).Output()
	require.NoError(t, err)
	return string(out)
}
