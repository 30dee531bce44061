"""Generate the example graph of careers that comes with focuse: jobs, skills, tasks and tools.

    python benchmarks/careers.py FILE.tsv.gz        # src/focuse/data/careers.tsv.gz has this content

A recorded pair is only plausible; how well it fits is in its weight. `WORDS` holds the names by field and kind, all
written for this library: names are separated by ';', and a name marked '@field' belongs to that second field as well.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

WORDS: Final[dict[str, dict[str, str]]] = {
    "health": {
        "job": """Ward Nurse; Paediatric Nurse; General Practitioner; Heart Surgeon; Dental Hygienist; Physiotherapist;
            Hospital Pharmacist @science; Midwife; Paramedic @logistics; Radiographer @engineering;
            Speech Therapist @education; Clinical Data Analyst @software; Ward Manager; Optometrist;
            Nutrition Adviser @food; Infection Control Officer""",
        "skill": """patient communication; wound care; clinical judgement; dosage calculation; infection prevention;
            anatomy; triage @logistics; empathic listening @education; medical record keeping""",
        "task": """take a patient history; dress a surgical wound; check a prescription; plan a discharge from hospital;
            read a chest X-ray; give a vaccination; monitor vital signs; explain a diagnosis to a family;
            prepare an operating theatre; fit a hearing aid; screen newborns for jaundice; coach a stroke patient;
            stabilise a casualty at the roadside @logistics; draw a blood sample @science;
            design a diet for a diabetic patient @food; code diagnoses in a patient register @software""",
        "tool": """stethoscope; ultrasound scanner @engineering; infusion pump; blood pressure cuff; pulse oximeter;
            surgical clamp; electronic patient record @software; defibrillator""",
    },
    "software": {
        "job": """Backend Developer; Front-End Developer @media; Database Administrator; Site Reliability Engineer;
            Mobile App Developer; Security Analyst; Machine Learning Engineer @science; Test Automation Engineer;
            Embedded Software Developer @engineering; Data Warehouse Architect; Technical Writer @media;
            Payments Developer @finance; Product Owner; Network Administrator; Game Programmer @media;
            Scrum Coach @education""",
        "skill": """programming in Python; relational data modelling; debugging; system design; test design;
            threat modelling; statistical learning @science; requirements analysis; version control""",
        "task": """review a pull request; tune a slow query; migrate a database; write unit tests;
            design a public interface for a service; triage a bug report; roll back a failed release;
            set up a build pipeline; patch a security hole; train a classifier @science;
            write a device driver @engineering; document an application @media; plan a sprint; trace a memory leak;
            model the data of a new product; automate an invoice import @finance""",
        "tool": """code editor; debugger; container platform; issue tracker; relational database;
            network packet sniffer @engineering; notebook server @science; continuous integration server""",
    },
    "building": {
        "job": """Bricklayer; Site Foreman; Roofer; Structural Engineer @engineering; Architect @media; Plumber;
            House Electrician @engineering; Quantity Surveyor @finance; Carpenter; Crane Operator @logistics;
            Façade Designer; Plasterer; Building Inspector; Land Surveyor @science; Floor Tiler; Heating Installer""",
        "skill": """blueprint reading; structural calculation @engineering; joinery; masonry; site safety;
            cost estimation @finance; spatial planning; pipe fitting; knowledge of building codes""",
        "task": """pour a foundation; lay a course of bricks; frame a timber wall; survey a building plot @science;
            check a load-bearing beam @engineering; tile a bathroom floor; wire a distribution board @engineering;
            draw up a floor plan; inspect a scaffold; insulate a loft; price a renovation @finance;
            schedule trades on a site @logistics; seal a flat roof; install a boiler; plaster a ceiling;
            apply for a planning permit""",
        "tool": """theodolite @science; spirit level; concrete mixer; circular saw; tower crane @logistics;
            pipe wrench; laser distance meter; building information model @engineering""",
    },
    "finance": {
        "job": """Auditor; Tax Adviser; Payroll Clerk; Credit Risk Analyst @science; Mortgage Broker; Actuary @science;
            Portfolio Manager; Insurance Underwriter; Financial Controller; Fraud Investigator @software;
            Treasury Analyst; Bank Branch Manager; Procurement Officer @logistics; Bookkeeper;
            Business Journalist @media; Trading Systems Analyst @software""",
        "skill": """negotiation @logistics; financial reporting; budgeting; risk assessment; tax law; auditing;
            forecasting @science; spreadsheet modelling; attention to detail @software""",
        "task": """close the monthly accounts; reconcile a bank statement; prepare a tax return; value a property loan;
            audit an expense claim; price an insurance policy; build a cash flow forecast;
            assess a credit application; negotiate a supply contract @logistics; report to shareholders;
            run the payroll; rebalance an investment portfolio; investigate a suspicious transfer @software;
            model the risk of default @science; advise a client on pensions; draft an annual budget""",
        "tool": """spreadsheet; accounting ledger software @software; market data terminal; payroll system;
            credit scoring model @science; tax filing portal; expense scanner; currency calculator""",
    },
    "science": {
        "job": """Marine Biologist; Research Chemist; Field Geologist; Particle Physicist @engineering; Meteorologist;
            Laboratory Technician @health; Geneticist @health; Ecologist; Biostatistician @health; Astronomer;
            Soil Scientist @food; Science Communicator @media; Computational Chemist @software;
            Materials Scientist @engineering; University Lecturer @education; Epidemiologist @health""",
        "skill": """experimental design; statistical inference; laboratory technique; scientific writing @media;
            microscopy; field sampling; hypothesis testing; chemical analysis; numerical simulation @software""",
        "task": """titrate a sample; sequence a genome @health; calibrate an instrument @engineering;
            collect water samples; write a research paper; analyse survey data; count plankton under a microscope;
            map a rock formation; simulate a chemical reaction @software; observe a variable star;
            apply for a research grant; review a manuscript; track animal migration; test soil for nutrients @food;
            model the spread of an epidemic @health; forecast the weather""",
        "tool": """electron microscope; spectrum analyser @engineering; gas chromatograph; centrifuge @health;
            telescope; statistics package @software; pipette; weather balloon""",
    },
    "education": {
        "job": """Primary School Teacher; Secondary School Teacher; Special Needs Teacher @health; School Principal;
            Kindergarten Teacher; Language Tutor @media; Careers Adviser; School Librarian @media;
            Curriculum Developer; Teaching Assistant; School Psychologist @health; Music Teacher @media;
            Vocational Instructor @engineering; Learning Designer @software; Adult Literacy Coach;
            Driving Instructor @logistics""",
        "skill": """lesson planning; classroom management; mentoring; storytelling @media; assessment design;
            conflict mediation; child development; public speaking @media; giving feedback""",
        "task": """plan a lesson; mark an essay; hold a parents' evening; teach a child to read; set an examination;
            lead a class discussion; write a school report; mentor a trainee teacher;
            adapt material for a pupil with dyslexia; organise a school trip @logistics;
            build an online course @software; counsel a worried pupil @health; rehearse a school choir @media;
            demonstrate a workshop machine @engineering; observe a colleague's class; revise a curriculum""",
        "tool": """interactive whiteboard; learning platform @software; flash cards; grade book; reading primer;
            school timetable planner @logistics; plagiarism checker; picture book @media""",
    },
    "food": {
        "job": """Pâtissier; Head Chef; Sous-Chef; Baker; Butcher; Sommelier; Restaurant Manager @finance; Barista;
            Food Technologist @science; Dairy Farmer; Vegetable Grower; Cheese Maker; Canteen Cook;
            Catering Planner @logistics; Food Critic @media; Maître d'Hôtel""",
        "skill": """menu planning; knife skills; food hygiene @health; flavour pairing; dough handling;
            crop husbandry @science; guest service; portion costing @finance; crème and custard making""",
        "task": """bake a sourdough loaf; season a sauce; bone a joint of meat; plate a dessert; temper chocolate;
            order fresh produce @logistics; pair wine with a menu; clean down a kitchen; welcome guests to a table;
            test milk for bacteria @science; harvest salad crops; cost a new dish @finance; label allergens @health;
            cater for a wedding; brew an espresso; photograph a dish for a menu @media""",
        "tool": """convection oven; dough mixer; chef's knife; espresso machine; food thermometer @health;
            sous-vide bath; milking machine; table booking system""",
    },
    "media": {
        "job": """News Editor; Film Director; Sound Engineer @engineering; Graphic Designer; Illustrator; Copywriter;
            Photojournalist; Animator @software; Radio Presenter; Museum Curator @education; Stage Manager @logistics;
            Literary Translator @education; Video Editor; Advertising Planner @finance; Costume Designer;
            User Experience Designer @software""",
        "skill": """copy editing; visual composition; interviewing; typography; film editing; creative writing;
            audio mixing @engineering; audience research; animation @software""",
        "task": """edit a news story; light a film set; record a voice-over; lay out a magazine page;
            interview a witness; storyboard a commercial; translate a novel @education; retouch a portrait;
            mix a live concert @engineering; curate an exhibition @education; pitch a campaign to a client @finance;
            animate a character @software; write a headline; cut a film trailer; sketch a costume; host a radio show""",
        "tool": """film camera; mixing desk @engineering; drawing tablet; photo editing suite; studio microphone;
            page layout program; teleprompter; motion capture rig @software""",
    },
    "logistics": {
        "job": """Lorry Driver; Warehouse Manager; Freight Forwarder; Airline Pilot @engineering; Ship's Captain;
            Train Dispatcher; Customs Broker @finance; Supply Chain Planner @finance; Forklift Operator;
            Air Traffic Controller; Courier; Harbour Pilot; Fleet Mechanic @engineering; Stock Controller;
            Route Planning Analyst @software; Removals Foreman @building""",
        "skill": """route planning; inventory control; load securing; scheduling; customs procedure @finance;
            vehicle handling; radio communication; navigation; demand planning @finance""",
        "task": """load a container; plan a delivery route; clear goods through customs @finance; count the stock;
            dispatch a freight train; dock a ferry; guide an aircraft to land; inspect a lorry before a trip;
            pick an order in a warehouse; track a late parcel; book cargo space; secure an oversized load @building;
            optimise a delivery network @software; replace a brake pad @engineering; log driving hours;
            train a new driver @education""",
        "tool": """forklift truck; barcode scanner; tachograph; warehouse management system @software; pallet jack;
            radar display @engineering; nautical chart; route planner @software""",
    },
    "engineering": {
        "job": """Mechanical Engineer; Machinist; Welder @building; Robotics Engineer @software; Aerospace Engineer;
            Process Engineer @science; Quality Inspector; Maintenance Technician; Tool and Die Maker;
            Chemical Plant Operator @science; Electronics Designer; Production Planner @logistics;
            CAD/CAM Specialist @software; Power Grid Engineer; Prosthetics Engineer @health;
            Hydraulic Excavator Mechanic @building""",
        "skill": """CAD/CAM; thermodynamics @science; fault finding; welding @building; circuit design;
            control theory @software; precision measurement; process optimisation; equipment maintenance""",
        "task": """draft a maintenance plan; mill a steel part; weld a pipe joint @building;
            program a robot arm @software; test a circuit board; measure a tolerance; balance a turbine;
            replace a worn bearing; run a fatigue test @science; start up a production line; design a gearbox;
            diagnose a motor fault; set up a lathe; prototype an artificial limb @health;
            plan a production batch @logistics; size a power transformer""",
        "tool": """CNC lathe; oscilloscope; arc welder @building; coordinate measuring machine; torque wrench;
            3D printer; programmable logic controller @software; finite element solver @science""",
    },
}


_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CareerEdges:
    """Edges as four columns of one length; a weight is the importance of a link, from 0 to 1."""

    head: list[str]
    relation: list[str]
    tail: list[str]
    weight: _Floats


class _Relation(NamedTuple):
    """A relation of the graph: its number of edges, its kinds of entities and the distribution of its weights."""

    name: str
    head: str  # kind of entity
    tail: str
    edges: int
    shape: tuple[float, float]  # parameters of the weights' Kumaraswamy distribution on [0, 1]
    directed: bool  # whether fit(a, b) may differ from fit(b, a)


_RELATIONS: Final = (
    _Relation("requires skill", "job", "skill", 3000, (1.5, 3.2), False),
    _Relation("performs task", "job", "task", 2300, (1.2, 3.6), False),
    _Relation("uses tool", "job", "tool", 1400, (1.1, 2.2), False),
    _Relation("needs skill", "task", "skill", 1300, (1.5, 3.0), False),
    _Relation("supports task", "tool", "task", 900, (1.4, 3.0), False),
    _Relation("leads to", "job", "job", 750, (1.2, 4.0), True),
    _Relation("builds on", "skill", "skill", 350, (1.4, 3.2), True),
)

# One row per field; columns: care, numbers, machines, code, materials, words, biology, order, guests, evidence.
_PROFILES: Final[dict[str, tuple[int, ...]]] = {
    "health": (3, 0, 0, 0, 0, 0, 3, 1, 0, 2),
    "software": (0, 2, 1, 4, 0, 1, 0, 0, 0, 1),
    "building": (0, 1, 2, 0, 4, 0, 0, 1, 0, 0),
    "finance": (0, 3, 0, 2, 0, 0, 0, 3, 1, 0),
    "science": (0, 2, 1, 2, 0, 0, 3, 0, 0, 4),
    "education": (3, 0, 0, 0, 0, 4, 0, 1, 0, 1),
    "food": (1, 0, 0, 0, 2, 0, 3, 1, 4, 0),
    "media": (1, 0, 0, 2, 0, 4, 0, 0, 3, 0),
    "logistics": (0, 1, 2, 0, 1, 0, 0, 4, 2, 0),
    "engineering": (0, 1, 4, 2, 2, 0, 0, 0, 0, 1),
}
_MIN_COSINE: Final = 0.3  # minimal cosine of the field centers of related entities
_SECOND_FIELD: Final = 0.4  # fraction of a second field in an entity's center
_ENTITY_NOISE: Final = 0.3  # noise per dimension, so that its length is about that of a field's center
_RELATION_NOISE: Final = 0.5  # standard deviation of the log importance of a dimension to a relation
_ANTISYMMETRY: Final = 0.7  # strength of the antisymmetric part of a directed relation
_WEIGHT_NOISE: Final = 0.5  # noise on a weight, in standard deviations of the fit
_RANDOM_EDGES: Final = 0.04  # fraction of edges between pairs that are not related
_MIN_EDGES: Final = 2  # minimal number of edges of every entity in each relation between two kinds


class _World(NamedTuple):
    """The latent structure: names, vectors and field membership by kind, and interactions by relation."""

    names: dict[str, list[str]]
    vectors: dict[str, _Floats]
    member: dict[str, _Floats]
    interaction: dict[str, _Floats]


def _centers() -> _Floats:
    """Return unit vectors of the fields around their common mean, so that different fields point apart."""
    table = np.array([_PROFILES[field] for field in WORDS], dtype=np.float64)
    table -= table.mean(axis=0)
    return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True), dtype=np.float64)


def _names_and_fields(kind: str) -> tuple[list[str], _Floats]:
    """Return the names of a kind, and the share of every field in each of them."""
    fields = list(WORDS)
    names: list[str] = []
    shares: list[_Floats] = []
    for index, field in enumerate(fields):
        for entry in WORDS[field][kind].split(";"):
            name, _, second = (part.strip() for part in entry.partition("@"))
            share = np.zeros(len(fields))
            share[index] = 1.0
            if second:
                share[index] -= _SECOND_FIELD
                share[fields.index(second)] = _SECOND_FIELD
            names.append(name)
            shares.append(share)
    return names, np.stack(shares)


def _latent(rng: np.random.Generator) -> _World:
    """Draw the entities' vectors and the relations' interactions, which are the first draws of a seed."""
    centers = _centers()
    rank = centers.shape[1]
    names, vectors, member = {}, {}, {}
    for kind in ("job", "skill", "task", "tool"):
        names[kind], member[kind] = _names_and_fields(kind)
        noise = rng.normal(0.0, _ENTITY_NOISE, (len(names[kind]), rank))
        vectors[kind] = member[kind] @ centers + noise
    # Rotating pairs of dimensions is multiplication by a complex number, which small bilinear models can express.
    rotation = np.kron(np.eye(rank // 2), np.array([[0.0, 1.0], [-1.0, 0.0]]))
    interaction = {}
    for relation in _RELATIONS:
        interaction[relation.name] = np.diag(np.exp(rng.normal(0.0, _RELATION_NOISE, rank)))
        if relation.directed:
            interaction[relation.name] += _ANTISYMMETRY * rotation
    return _World(names, vectors, member, interaction)


def _fit(world: _World, relation: _Relation) -> _Floats:
    """Return the noise-free fit of every head with every tail of a relation."""
    left = world.vectors[relation.head] @ world.interaction[relation.name]
    return np.asarray(left @ world.vectors[relation.tail].T, dtype=np.float64)


def _related(heads: _Floats, tails: _Floats) -> npt.NDArray[np.bool_]:
    """Return whether two entities share a field or have similar fields, independently of their own vectors."""
    centers = _centers()
    left, right = heads @ centers, tails @ centers
    cosine = left @ right.T / np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
    return np.asarray((heads @ tails.T > 0.0) | (cosine >= _MIN_COSINE), dtype=np.bool_)


def _choose_pairs(world: _World, relation: _Relation, rng: np.random.Generator) -> tuple[_Ints, _Ints]:
    """Choose the pairs that become edges regardless of their fit, so that strong and weak edges occur alike."""
    related = _related(world.member[relation.head], world.member[relation.tail])
    allowed = np.ones_like(related)
    if relation.head == relation.tail:
        np.fill_diagonal(allowed, False)
    random_edges = round(_RANDOM_EDGES * relation.edges)
    key = np.where(related & allowed, rng.random(related.shape), np.inf)
    if relation.head != relation.tail:
        # The first pairs of each entity come before the rest, so that no entity is left without edges.
        by_row = np.partition(key, _MIN_EDGES - 1, axis=1)[:, _MIN_EDGES - 1 : _MIN_EDGES]
        by_column = np.partition(key, _MIN_EDGES - 1, axis=0)[_MIN_EDGES - 1 : _MIN_EDGES]
        key -= (key <= by_row) | (key <= by_column)
    plausible = np.argsort(key, axis=None)[: relation.edges - random_edges]
    unrelated = rng.choice(np.flatnonzero(~related & allowed), random_edges, replace=False)
    # Edges are shuffled, because their order must not reveal the random ones.
    head, tail = np.divmod(rng.permutation(np.concatenate([plausible, unrelated])), related.shape[1])
    return head.astype(np.int64), tail.astype(np.int64)


def _draw_weights(fit: _Floats, relation: _Relation, rng: np.random.Generator) -> _Floats:
    """Draw weights from the relation's skewed distribution, in the order of the noisy fits."""
    noisy = fit + rng.normal(0.0, _WEIGHT_NOISE * fit.std(), len(fit))
    quantile = (np.argsort(np.argsort(noisy)) + 0.5) / len(fit)
    first, second = relation.shape
    unit = (1.0 - (1.0 - quantile) ** (1.0 / second)) ** (1.0 / first)
    return np.asarray(np.round(unit, 3), dtype=np.float64)


def generate(seed: int = 2021) -> CareerEdges:
    """Generate the careers graph; the same seed gives the same edges."""
    rng = np.random.default_rng(seed)
    world = _latent(rng)
    heads: list[str] = []
    relations: list[str] = []
    tails: list[str] = []
    weights: list[_Floats] = []
    for relation in _RELATIONS:
        head, tail = _choose_pairs(world, relation, rng)
        weights.append(_draw_weights(_fit(world, relation)[head, tail], relation, rng))
        heads += np.array(world.names[relation.head], dtype=object)[head].tolist()
        tails += np.array(world.names[relation.tail], dtype=object)[tail].tolist()
        relations += [relation.name] * len(head)
    return CareerEdges(heads, relations, tails, np.concatenate(weights))


def text(edges: CareerEdges) -> str:
    """Return one line per edge: head, relation, tail and weight."""
    rows = zip(edges.head, edges.relation, edges.tail, edges.weight.tolist(), strict=True)
    return "".join(f"{head}\t{relation}\t{tail}\t{weight:g}\n" for head, relation, tail, weight in rows)


def main() -> None:
    """Write the graph as a compressed file that has the same bytes every time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    import smoke  # of this folder; tests load the generator without it

    given = smoke.parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "careers.tsv.gz") if given.smoke or given.file is None else given.file
        file.write_bytes(gzip.compress(text(generate()).encode(), 9, mtime=0))
        print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
