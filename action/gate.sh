#!/usr/bin/env bash
# Run `benchlock gate`, report its verdict, and exit with its code. Inputs are variables; only the first two are needed:
# GATE_BASELINE, GATE_CANDIDATE, GATE_MARGINS, GATE_ROUNDS, GATE_REGISTRY, GATE_ISOLATION, GATE_UNDECIDED (fail or warn),
# GATE_PULL_REQUEST (a number: comment on it with gh).
set -ufo pipefail

# The first line of the comment, by which the next run of the action finds it. Other workflows may have their own.
marker="<!-- benchlock gate: ${GITHUB_WORKFLOW:-}/${GITHUB_JOB:-} -->"

# Update the comment of an earlier run, or add one. Only comments of apps are updated, as the token of a job is one:
# anybody could write a comment with the marker.
comment_on_pull_request() {
    local issues="repos/${GITHUB_REPOSITORY:-}/issues" ids body
    body=$(mktemp) || return
    { printf '%s\n' "$marker" && cat "$report"; } >"$body"
    ids=$(MARKER=$marker gh api --paginate "$issues/$GATE_PULL_REQUEST/comments" --jq \
        '.[] | select(.user.type == "Bot" and (.body | startswith(env.MARKER))) | .id') || return
    if [ -n "$ids" ]; then
        gh api --method PATCH "$issues/comments/${ids##*$'\n'}" --field "body=@$body" >/dev/null
    else
        gh api --method POST "$issues/$GATE_PULL_REQUEST/comments" --field "body=@$body" >/dev/null
    fi
}

report=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/benchlock-gate.XXXXXX")/report.md
words=(--baseline "${GATE_BASELINE:-}" --candidate "${GATE_CANDIDATE:-}" --markdown "$report")
for margin in ${GATE_MARGINS:-}; do words+=(--margin "$margin"); done
[ -z "${GATE_ROUNDS:-}" ] || words+=(--rounds "$GATE_ROUNDS")
[ -z "${GATE_ISOLATION:-}" ] || words+=(--isolation "$GATE_ISOLATION")
[ -z "${GATE_REGISTRY:-}" ] || export BENCHLOCK_REGISTRY=$GATE_REGISTRY

code=0
benchlock gate "${words[@]}" || code=$?
case $code in
0) verdict=passed ;;
1) verdict=failed ;;
7) verdict=undecided ;;
*) verdict=error ;;
esac
[ -f "$report" ] || printf '### benchlock gate: no verdict\n\nExit code %d; the log has the reason.\n' "$code" >"$report"

if [ -n "${GITHUB_OUTPUT:-}" ]; then
    printf 'verdict=%s\nexit-code=%d\nreport=%s\n' "$verdict" "$code" "$report" >>"$GITHUB_OUTPUT"
fi
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$report" >>"$GITHUB_STEP_SUMMARY"
if [ -n "${GATE_PULL_REQUEST:-}" ]; then
    # A comment that fails, as on pull requests of forks, changes no verdict.
    comment_on_pull_request ||
        echo "::warning::benchlock gate: cannot comment on pull request $GATE_PULL_REQUEST"
fi
if [ "$verdict" = undecided ] && [ "${GATE_UNDECIDED:-fail}" = warn ]; then
    echo "::warning::benchlock gate: undecided; the report has the number of rounds that would decide"
    exit 0
fi
exit "$code"
