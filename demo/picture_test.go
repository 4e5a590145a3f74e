package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	browsers    = flag.String("browsers", "", "the browsers that TestBrowser_DrawsPictureInColumns uses, separated by commas")
	screenshots = flag.String("screenshots", "", "the directory to which TestBrowser_DrawsPictureInColumns writes its screenshots")
)

// picturePage shows the picture as README.md does. In a second copy, which scripts can read, it measures the
// distance of the first and the last visible character of each line from the beginning of the line, in widths of
// a character. If the browser has removed spaces, the last character does not exist.
const picturePage = `<!DOCTYPE html><title>picture</title><body style="margin:0">
<img src="/picture.svg" alt=""><object data="/picture.svg" type="image/svg+xml"></object><script>
addEventListener("load", () => {
	const lines = [...document.querySelector("object").contentDocument.querySelectorAll("text")].map(line => {
		const text = line.textContent, probe = line.cloneNode();
		probe.textContent = "00";
		line.parentNode.append(probe);
		const width = probe.getStartPositionOfChar(1).x - probe.getStartPositionOfChar(0).x;
		probe.remove();
		const column = i => i < line.getNumberOfChars() ? (line.getStartPositionOfChar(i).x - line.getAttribute("x")) / width : -1;
		return {text, first: column(text.search(/\S/)), last: column(text.trimEnd().length - 1)};
	});
	const request = new XMLHttpRequest();
	request.open("POST", "/lines", false); // the screenshot is taken afterwards
	request.send(JSON.stringify(lines));
});
</script>`

// TestBrowser_DrawsPictureInColumns checks that a browser draws each character of the picture in README.md in
// its column. It needs browsers: "make browser" runs it.
func TestBrowser_DrawsPictureInColumns(t *testing.T) {
	if *browsers == "" {
		t.Skip("no -browsers")
	}
	for browser := range strings.SplitSeq(*browsers, ",") {
		for _, theme := range []string{"light", "dark"} {
			t.Run(browser+"/"+theme, func(t *testing.T) { checkPicture(t, browser, theme) })
		}
	}
}

func checkPicture(t *testing.T, browser, theme string) {
	type line struct {
		Text        string
		First, Last float64
	}
	measured := make(chan []line, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			fmt.Fprint(w, picturePage)
		case "/picture.svg":
			http.ServeFile(w, r, "../docs/demo-"+theme+".svg")
		case "/lines":
			var lines []line
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&lines))
			measured <- lines
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()

	profile, shot := t.TempDir(), filepath.Join(t.TempDir(), "picture.png")
	if *screenshots != "" {
		require.NoError(t, os.MkdirAll(*screenshots, 0o755))
		shot = filepath.Join(*screenshots, fmt.Sprintf("demo-%s-%s.png", theme, filepath.Base(browser)))
	}
	args := []string{"--headless", "--window-size=720,1600"}
	if strings.Contains(filepath.Base(browser), "firefox") {
		args = append(args, "--no-remote", "--profile", profile, "--screenshot", shot)
	} else {
		args = append(args, "--no-sandbox", "--disable-gpu", "--user-data-dir="+profile, "--screenshot="+shot)
	}
	command := exec.CommandContext(t.Context(), browser, append(args, server.URL)...)
	command.Env = append(os.Environ(), "HOME="+profile)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.FileExists(t, shot, "%s", output)
	var lines []line
	select {
	case lines = <-measured:
	default:
		require.FailNow(t, "the page did not measure the lines", "%s", output)
	}
	require.Greater(t, len(lines), 10)
	for _, l := range lines {
		runes := []rune(l.Text)
		indent := len(runes) - len([]rune(strings.TrimLeft(l.Text, " ")))
		assert.InDelta(t, indent, l.First, 0.2, "the first character of %q", l.Text)
		assert.InDelta(t, len(runes)-1, l.Last, 0.2, "the last character of %q", l.Text)
	}
}
