// Command picture draws the output of the demo, read from standard input, as two SVG files:
// one for a light and one for a dark background. "make picture" runs it.
//
//	CLICOLOR_FORCE=1 go run ./demo | go run ./demo/picture docs/demo
package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"strings"
)

// theme maps the ANSI codes of the demo to colours. The code "" is plain text.
type theme struct {
	name, background, border string
	colours                  map[string]string
}

var themes = []theme{
	{"light", "#ffffff", "#d1d9e0", map[string]string{
		"": "#1f2328", "1": "#1f2328", "2": "#59636e", "31": "#cf222e", "32": "#1a7f37", "33": "#9a6700",
	}},
	{"dark", "#0d1117", "#3d444d", map[string]string{
		"": "#f0f6fc", "1": "#f0f6fc", "2": "#9198a1", "31": "#ff7b72", "32": "#3fb950", "33": "#d29922",
	}},
}

// steps are the steps of the demo that the picture shows.
var steps = []string{"Three candidates join", "The leader crashes", "The leader resigns", "The leader is cut off"}

func main() {
	if err := run(os.Stdin, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument, the path of the pictures without -light.svg and -dark.svg")
	}
	output, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	lines, err := excerpt(string(output))
	if err != nil {
		return err
	}
	for _, t := range themes {
		if err := os.WriteFile(args[0]+"-"+t.name+".svg", []byte(draw(lines, t)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// excerpt returns the lines of the steps that are drawn. Blank lines separate the heading,
// the steps and the tables of the output.
func excerpt(output string) ([]string, error) {
	blocks := strings.Split(strings.TrimSpace(output), "\n\n")
	lines := append([]string{"\x1b[1m$ make demo\x1b[0m"}, strings.Split(blocks[0], "\n")...)
	for _, step := range steps {
		found := false
		for _, block := range blocks {
			block := strings.Split(block, "\n")
			if strings.Contains(block[0], step) {
				lines = append(append(lines, ""), block...)
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("the output does not contain the step %q", step)
		}
	}
	return lines, nil
}

const (
	charWidth, lineHeight, margin = 8, 19, 20
	columns                       = 80
)

// draw returns an SVG with one text element for each line. Each element preserves its spaces:
// Chromium does not inherit that from a group.
func draw(lines []string, t theme) string {
	width, height := columns*charWidth+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="The output of make demo">
<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>
<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13">
`, width, height, width-1, height-1, t.background, t.border)
	for i, line := range lines {
		code, text := parse(line)
		if text == "" {
			continue
		}
		weight := ""
		if code == "1" {
			weight = ` font-weight="bold"`
		}
		fmt.Fprintf(&b, "<text xml:space=\"preserve\" style=\"white-space:pre\" x=\"%d\" y=\"%d\" fill=\"%s\"%s>%s</text>\n",
			margin, margin+(i+1)*lineHeight-6, t.colours[code], weight, html.EscapeString(text))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// parse splits a line of the demo, which has at most one style, into its ANSI code and text.
func parse(line string) (code, text string) {
	styled, isStyled := strings.CutPrefix(line, "\x1b[")
	if !isStyled {
		return "", line
	}
	code, text, _ = strings.Cut(styled, "m")
	return code, strings.TrimSuffix(text, "\x1b[0m")
}
