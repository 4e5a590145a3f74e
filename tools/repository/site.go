package main

import (
	"flag"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// browse is the beginning of the web addresses of files in the repository.
const browse = "https://github.com/go-leaderelection/leaderelection/blob/main/"

// runSite builds the site of docs with MkDocs, and checks its links. A link of a page to a file outside of docs
// becomes a link to the repository. Each internal link must lead to a page and an anchor that exist, and no page may
// load a resource of another host.
func runSite(args []string) error {
	flags := flag.NewFlagSet("site", flag.ExitOnError)
	out := flags.String("o", "site", "directory of the site, below the root of the repository unless it is absolute")
	external := flags.Bool("external", false, "list the links to other hosts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs("..") // the root of the repository
	if err != nil {
		return err
	}
	if !filepath.IsAbs(*out) {
		*out = filepath.Join(root, *out)
	}
	if err := buildSite(root, *out); err != nil {
		return err
	}
	others, problems, err := checkLinks(os.DirFS(*out))
	if err != nil {
		return err
	}
	if *external {
		fmt.Println(strings.Join(others, "\n"))
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(problems) > 0 {
		return fmt.Errorf("broken links: %d", len(problems))
	}
	fmt.Printf("%s: all internal links lead to a page; links to other hosts: %d\n", *out, len(others))
	return nil
}

// buildSite renders the pages of docs to out.
func buildSite(root, out string) error {
	pages, err := os.MkdirTemp("", "site")
	if err != nil {
		return err
	}
	defer os.RemoveAll(pages)
	docs := filepath.Join(root, "docs")
	err = filepath.WalkDir(docs, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(docs, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if filepath.Ext(file) == ".md" {
			text = []byte(linkRepository(path.Join("docs", filepath.ToSlash(name)), string(text)))
		}
		target := filepath.Join(pages, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644)
	})
	if err != nil {
		return err
	}
	cmd := exec.Command("mkdocs", "build", "--quiet", "--strict", "--clean", "--config-file", filepath.Join(root, "tools", "repository", "mkdocs.yml"))
	cmd.Env = append(os.Environ(), "SITE_DOCS="+pages, "SITE_DIR="+out)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// linkRepository returns the text of a page, with links to the repository instead of links to files outside of docs.
// page is the path of the page in the repository.
func linkRepository(page, text string) string {
	return link.ReplaceAllStringFunc(text, func(found string) string {
		target := found[len("](") : len(found)-1]
		if u, err := url.Parse(target); err != nil || u.IsAbs() || u.Path == "" {
			return found
		}
		if full := path.Join(path.Dir(page), target); !strings.HasPrefix(full, "docs/") {
			return "](" + browse + full + ")"
		}
		return found
	})
}

var (
	reference = regexp.MustCompile(`<(\w+)\b[^>]*?\s(href|src)="([^"]*)"`)
	anchor    = regexp.MustCompile(`\s(?:id|name)="([^"]*)"`)
)

// checkLinks checks the HTML pages of a site. others contains the links to other hosts. problems describes each link
// that leads nowhere, and each resource of another host that a page loads.
func checkLinks(site fs.FS) (others, problems []string, err error) {
	anchors, pages, external := map[string]map[string]bool{}, map[string]string{}, map[string]bool{}
	err = fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		// Ignore the page 404.html, because its links begin at the root of a host.
		if err != nil || path.Ext(name) != ".html" || name == "404.html" {
			return err
		}
		text, err := fs.ReadFile(site, name)
		if err != nil {
			return err
		}
		pages[name], anchors[name] = string(text), map[string]bool{}
		for _, a := range anchor.FindAllStringSubmatch(string(text), -1) {
			anchors[name][html.UnescapeString(a[1])] = true
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, r := range reference.FindAllStringSubmatch(pages[name], -1) {
			element, text := r[1], html.UnescapeString(r[3])
			u, err := url.Parse(text)
			switch {
			case err != nil:
				problems = append(problems, fmt.Sprintf("%s: %v", name, err))
				continue
			case u.Host != "" && element != "a":
				problems = append(problems, fmt.Sprintf("%s loads %s", name, text))
				continue
			case u.IsAbs() || u.Host != "":
				external[text] = true
				continue
			}
			target := name
			if u.Path != "" {
				target = path.Join(path.Dir(name), u.Path)
			}
			if target == "." || strings.HasSuffix(u.Path, "/") {
				target = path.Join(target, "index.html")
			}
			if _, err := fs.Stat(site, target); err != nil {
				problems = append(problems, fmt.Sprintf("%s links %s, which does not exist", name, text))
			} else if ids := anchors[target]; u.Fragment != "" && ids != nil && !ids[u.Fragment] && !strings.HasPrefix(u.Fragment, "__") {
				problems = append(problems, fmt.Sprintf("%s links %s, which has no such anchor", name, text))
			}
		}
	}
	return slices.Sorted(maps.Keys(external)), problems, nil
}
