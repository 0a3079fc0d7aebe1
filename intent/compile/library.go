package compile

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Library reads and checks the library of a directory. Runtimes and names of importing applications are checked when those are compiled.
// An error of type Problems lists all problems.
func Library(fsys fs.FS) (config.LibraryContent, error) {
	read, problems, err := config.ReadLibrary(fsys)
	if err != nil {
		return config.LibraryContent{}, err
	}
	if read != nil {
		problems = append(problems, checkLibrary(read)...)
	}
	if len(problems) > 0 {
		return config.LibraryContent{}, problems.Sorted()
	}
	return read.Content, nil
}

// checkLibrary checks a library as an application that has no services and runtimes.
func checkLibrary(of *config.LibraryDocuments) strict.Problems {
	app := &config.Document[config.Application]{Decoder: &strict.Decoder{File: of.File}}
	app.Spec.ReleaseChannels, app.Spec.Protections, app.Spec.AddonTypes = of.Spec.ReleaseChannels, of.Spec.Protections, of.Spec.AddonTypes
	app.Graft("releaseChannels", of.Decoder, "releaseChannels")
	app.Graft("protections", of.Decoder, "protections")
	app.Graft("addonTypes", of.Decoder, "addonTypes")
	c := newCompiler(&Loaded{Config: &config.Config{Application: app, Protections: of.Protections}}, false)
	c.invalidRuntimeName = true // the runtimes are not known
	c.defineProtections()
	c.defineAddonTypes(app)
	if len(of.Spec.ReleaseChannels) > 0 {
		c.defineChannels(app)
	}
	c.defineConditions(app)
	c.defineGates(app)
	c.sortChannels(app)
	boundEach(c, of.Document)
	if len(of.Spec.ReleaseChannels)+len(of.Spec.Protections)+len(of.Spec.AddonTypes)+len(of.Protections) == 0 && len(of.Problems) == 0 {
		c.report(of.Decoder, "", strict.Fault{Code: "missing-field", Message: "this library is empty", Expected: "releaseChannels, protections, addonTypes, or documents of kind Protection"})
	}
	return c.allProblems()
}

// imports lists the imports of the application by content.
func (c *compiler) imports() []incarnation.Import {
	return strict.Map(c.config.Imported, func(i config.Imported) incarnation.Import {
		return incarnation.Import{Name: i.Name, Version: i.Version, Digest: i.Digest}
	})
}

// libraries returns the scopes of a grant for libraries.
func (c *compiler) libraries(d identityDecoder, at string, grant config.InstallationAuthorization) []string {
	if !d.Has(at + ".libraries") {
		return nil
	}
	if !slices.Equal(grant.Verbs, []string{protocol.PublishLibrary}) && !d.Faulty(at+".verbs") {
		c.report(d.Decoder, at+".libraries", strict.Fault{
			Code: "one-of", Message: "the other verbs do not apply to libraries", Expected: "verbs: [publish-library] in a separate grant",
		})
	}
	for _, other := range []string{"runtimes", "applications"} {
		if d.Has(at + "." + other) {
			c.report(d.Decoder, at+".libraries", strict.Fault{Code: "one-of", Message: fmt.Sprintf(`%q and "libraries" are both given`, other), Expected: "one of them"})
		}
	}
	c.checkPatterns(d, at+".libraries", grant.Libraries)
	return strict.Map(grant.Libraries, func(pattern string) string { return entities.ScopeLibraries + pattern })
}
