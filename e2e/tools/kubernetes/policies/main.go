// Compiles admission policies as the API server of each minor of Kubernetes does when one is written.
//
// It has the compiler of the pinned version, with the language and libraries that a minor takes in new expressions: those of the minor before it,
// so that the API server can be put back. https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/cel/environment/base.go
//
// Usage: policies MINOR... < POLICIES     with e.g. 30 36, and ValidatingAdmissionPolicies as a list in JSON. Prints each expression that a minor
// refuses, with the reason, and for each minor how many it takes.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

func main() {
	log.SetFlags(0)
	var policies []v1.ValidatingAdmissionPolicy
	if err := json.NewDecoder(os.Stdin).Decode(&policies); err != nil {
		log.Fatalf("policies: %v", err)
	}
	for _, argument := range os.Args[1:] {
		minor, err := strconv.ParseUint(argument, 10, 8)
		if err != nil || minor == 0 {
			log.Fatalf("policies: %s is not a minor", argument)
		}
		taken := 0
		for _, policy := range policies {
			taken += compile(uint(minor), policy)
		}
		fmt.Printf("1.%d takes %d\n", minor, taken)
	}
}

// How many expressions of a policy a minor takes.
func compile(minor uint, policy v1.ValidatingAdmissionPolicy) int {
	known := environment.MustBaseEnvSet(version.MajorMinor(1, minor-1))
	// Conditions have no variables.
	conditions := cel.NewCompiler(known)
	compiler, err := cel.NewCompositedCompiler(known)
	if err != nil {
		log.Fatalf("policies: 1.%d: %v", minor, err)
	}
	options := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	taken := 0
	note := func(field string, index int, result cel.CompilationResult) {
		if result.Error == nil {
			taken++
			return
		}
		fmt.Printf("1.%d refuses %s spec.%s[%d]: %v\n", minor, policy.Name, field, index, result.Error)
	}
	for i, condition := range policy.Spec.MatchConditions {
		accessor := matchconditions.MatchCondition(condition)
		note("matchConditions", i, conditions.CompileCELExpression(&accessor, options, environment.NewExpressions))
	}
	for i, variable := range policy.Spec.Variables {
		accessor := &validating.Variable{Name: variable.Name, Expression: variable.Expression}
		note("variables", i, compiler.CompileAndStoreVariable(accessor, options, environment.NewExpressions))
	}
	for i, validation := range policy.Spec.Validations {
		accessor := &validating.ValidationCondition{Expression: validation.Expression}
		note("validations", i, compiler.CompileCELExpression(accessor, options, environment.NewExpressions))
	}
	return taken
}
